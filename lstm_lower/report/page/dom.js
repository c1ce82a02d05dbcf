"use strict";
// Elements. Names in a model are anybody's, so that nothing is ever parsed as markup: text is set as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element with attributes, listeners (`onclick`) and children; strings become text. */
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** The same of SVG. */
const shape = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const byId = (id) => document.getElementById(id);

/** A table; columns are [title, isNumber], rows lists of texts or elements. */
function table(columns, rows, attributes = {}) {
  const cells = (tag, row) => row.map((cell, at) => el(tag, { class: columns[at][1] ? "number" : null }, cell));
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      attributes,
      el("thead", {}, el("tr", {}, cells("th", columns.map(([title]) => title)))),
      el("tbody", {}, rows.map((row) => (row instanceof Element ? row : el("tr", {}, cells("td", row))))),
    ),
  );
}

/** A text that keeps its beginning and its end. */
function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}

/** A type whose long names of dimensions are cut. */
function shortType(type) {
  return type.replace(/[^[\],]+/g, (part) => shortened(lastPart(part), 12));
}

/** The last part of a name with slashes. */
const lastPart = (name) => name.slice(name.lastIndexOf("/") + 1);

function bytesText(count) {
  let size = count;
  for (const unit of ["B", "kB", "MB"]) {
    if (size < 1000) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(1)} GB`;
}
