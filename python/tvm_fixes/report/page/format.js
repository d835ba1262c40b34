/*
 * Licensed to the Apache Software Foundation (ASF) under one or more contributor license
 * agreements.  See the NOTICE file distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
 * Version 2.0 (the "License"); you may not use this file except in compliance with the
 * License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software distributed under the
 * License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
 * either express or implied.  See the License for the specific language governing permissions
 * and limitations under the License.
 */
"use strict";

// Text of values. Names come from a model, which may be hostile: they become text nodes only, and
// characters that change how a line is shown become escapes.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

function shown(name) {
  const escape = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
  return String(name).replace(HIDDEN, escape);
}

/** Make an element with properties and children, which are elements or text. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Make an element for a name of the model. */
function named(name, tag = "span", className = "name") {
  return make(tag, { className }, shown(name));
}

function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100 && size < 1e6) return Math.round(value).toLocaleString("en");
  return size >= 1e6 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** A value in the largest unit in which it is at least one. */
function inUnit(value, units, step = 1000) {
  let place = 0;
  while (place + 1 < units.length && Math.abs(value) >= step) {
    value /= step;
    place += 1;
  }
  return `${digits(value)} ${units[place]}`;
}

const isKnown = (value) => value !== null && value !== undefined;
const unless = (text) => (value) => (isKnown(value) ? text(value) : "–");
const time = unless((s) => (s === 0 ? "0 s" : inUnit(s * 1e9, ["ns", "µs", "ms", "s"])));
const bytes = unless((n) => inUnit(n, ["B", "kB", "MB", "GB"]));
const count = unless((n) => n.toLocaleString("en"));
const share = unless((x) => `${x > 0 && x < 0.001 ? "< 0.1" : (100 * x).toFixed(x < 1 ? 1 : 0)}%`);
/** More than 100%: in the caches, or with instructions faster than NumPy's. */
const ofLimit = (x) => (x > 1 ? ">100%" : share(x));
const errorText = unless((x) => (x === 0 ? "0" : x < 1e-3 ? x.toExponential(1) : x.toPrecision(2)));
const rate = unless((x) => digits(x));

/** The operator, without the namespace and overload of PyTorch. */
function shortOperator(name) {
  const parts = name.split(".");
  return shown(parts.length > 2 && parts[0] === "aten" ? parts[1].replace(/_$/, "") : name);
}

/** The distinct operators of a call; its kernel if they are unknown. */
function operatorList(call) {
  if (!call.nodes.length) return [shown(call.kernel)];
  return [...new Set(call.nodes.map((node) => shortOperator(node.operator)))];
}

/** The operators of a call in one line. */
function operators(call) {
  return operatorList(call).join(" + ");
}

/** Where a call is in the model: the modules or the nodes that it computes. */
function places(call) {
  return [...new Set(call.nodes.map((node) => shown(node.path || node.name)))].join(", ");
}

/** The innermost module of all nodes of a call, or its nodes. */
function commonPlace(call) {
  const paths = call.nodes.map((node) => (node.path || node.name).split(/(?<=[./])/));
  if (paths.length < 2) return places(call);
  const isShared = (part, at) => paths.every((path) => path[at] === part);
  const first = paths[0].findIndex((part, at) => !isShared(part, at));
  const common = paths[0].slice(0, first < 0 ? undefined : first).join("").replace(/(?<=.)[./]$/, "");
  return common.length > 1 ? shown(common) : places(call);
}

/** Per second, in units of 1e9. */
function perSecond(amount, seconds) {
  return isKnown(amount) && seconds ? amount / seconds / 1e9 : null;
}
