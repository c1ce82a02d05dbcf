"use strict";
// A pane: the graph after one of the passes, to be moved, made larger, opened and closed.

const SHOWN_AT_FIRST = 30;
// Drawn beside what is in view, in sizes of the view; and how small letters are left out.
const BEYOND = 0.5;
const FAR = 0.25;
const ARROW = "M0 0L7 3.5L0 7z";

class Pane {
  /** `on.select(pane, item)` is called when something is chosen, `on.step(pane)` when another state is shown. */
  constructor(element, name, step, on) {
    this.element = element;
    this.name = name;
    this.on = on;
    this.open = null;
    this.scale = 1;
    this.offset = { x: 0, y: 0 };
    this.marks = new Map();
    this.lit = new Set();
    this.chosen = null;
    this.build();
    this.show(step);
    this.enableMoving();
  }

  build() {
    const button = (label, title, press) => el("button", { type: "button", title, "aria-label": `${title} (${this.name})`, onclick: press }, label);
    this.choice = el("select", { "aria-label": `State shown ${this.name}`, onchange: () => this.show(Number(this.choice.value)) });
    STEPS.forEach((step, at) => this.choice.append(el("option", { value: at }, `${at}  ${stepTitle(at)}`)));
    this.back = button("◀", "The state before", () => this.show(this.state.step - 1));
    this.forth = button("▶", "The state after", () => this.show(this.state.step + 1));
    this.count = el("span", { class: "count" });
    const bar = el(
      "div",
      { class: "bar" },
      this.back,
      this.choice,
      this.forth,
      this.count,
      el("span", { class: "gap" }),
      button("−", "Smaller", () => this.zoom(1 / 1.3)),
      button("+", "Larger", () => this.zoom(1.3)),
      button("fit", "All of it", () => this.fit()),
      button("open", "Open everything", () => this.openAll()),
      button("close", "Close everything", () => this.setOpen(new Set())),
    );
    const marker = { id: "arrow", viewBox: "0 0 7 7", refX: 6.5, refY: 3.5, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" };
    this.canvas = shape("g", {});
    // Both panes' lines end with the arrow of the first.
    const arrow = this.name === "left" ? shape("defs", {}, shape("marker", marker, shape("path", { d: ARROW }))) : null;
    this.svg = shape("svg", { class: "canvas", onclick: () => this.on.select(this, null) }, arrow, this.canvas);
    this.element.replaceChildren(bar, this.svg);
  }

  /** Shows the graph after a step. */
  show(step) {
    const first = this.state === undefined;
    this.state = stateAt(Math.min(LAST, Math.max(0, step)));
    this.tree = buildTree(this.state);
    if (first) this.open = openAtFirst(this.tree.root, SHOWN_AT_FIRST);
    this.choice.value = String(this.state.step);
    this.back.disabled = this.state.step === 0;
    this.forth.disabled = this.state.step === LAST;
    this.count.textContent = `${STEPS[this.state.step].count} nodes`;
    this.on.step(this);
    this.draw();
    if (first) this.fit();
  }

  draw() {
    arrange(this.tree.root, (item) => this.open.has(item.key));
    this.canvas.replaceChildren(drawContainer(this.tree.root));
    this.light(this.numbers ?? [], this.chosen);
    this.apply();
  }

  /** All items that are open to see, in view or not. */
  shown() {
    const found = [];
    const walk = (item) => {
      if (item.kind !== "body") found.push(item);
      if (item.kind === "body" || (isContainer(item) && this.open.has(item.key))) [...item.bodies, ...item.children].forEach(walk);
    };
    walk(this.tree.root);
    return found;
  }

  /** Draws what is in view. */
  uncoverView() {
    const frame = this.svg.getBoundingClientRect();
    const [width, height] = [frame.width / this.scale, frame.height / this.scale];
    const [x, y] = [-this.offset.x / this.scale, -this.offset.y / this.scale];
    const view = { left: x - BEYOND * width, top: y - BEYOND * height, right: x + (1 + BEYOND) * width, bottom: y + (1 + BEYOND) * height };
    const on = { select: (item) => this.on.select(this, item), toggle: (item) => this.toggle(item), follow: (item) => this.follow(item) };
    const item = (each) => this.colour(drawItem(each, on, this.marks));
    const line = (each) => this.colour(drawEdge(each));
    if (frame.width) uncoverView(this.tree.root, view, { item, line });
  }

  /** An item's box on the screen. */
  boxOf(item) {
    const frame = this.svg.getBoundingClientRect();
    const { x, y } = cornerOf(item);
    return new DOMRect(frame.x + this.offset.x + x * this.scale, frame.y + this.offset.y + y * this.scale, item.width * this.scale, item.height * this.scale);
  }

  /** Opens or closes a container, which stays where it is on the screen. */
  toggle(item) {
    const before = this.boxOf(item);
    const focused = item.element === document.activeElement;
    if (this.open.has(item.key)) this.open.delete(item.key);
    else this.open.add(item.key);
    this.draw();
    const after = this.boxOf(item);
    this.move(before.x - after.x, before.y - after.y);
    if (focused) item.element?.focus();
  }

  /** Brings what the keyboard is at into view. */
  follow(item) {
    const [box, frame] = [this.boxOf(item), this.svg.getBoundingClientRect()];
    if (box.x < frame.x || box.y < frame.y || box.x > frame.right - 20 || box.y > frame.bottom - 20) this.center(item);
  }

  setOpen(keys) {
    this.open = keys;
    this.draw();
    this.fit();
  }

  openAll() {
    const keys = new Set();
    const walk = (item) => {
      if (isContainer(item)) keys.add(item.key);
      [...item.children, ...item.bodies].forEach(walk);
    };
    walk(this.tree.root);
    this.setOpen(keys);
  }

  /** The item of a node as far as it is drawn: the node's, or the closed container around it. */
  visible(number) {
    let item = this.tree.leaves.get(number) ?? null;
    for (let around = item?.parent; around; around = around.parent) {
      if (isContainer(around) && !this.open.has(around.key)) item = around;
    }
    return item;
  }

  /** Opens what is around a node. */
  reveal(number) {
    return this.uncover(this.tree.leaves.get(number) ?? null);
  }

  /** Opens what is around an item. */
  uncover(inner) {
    let changed = false;
    for (let item = inner?.parent; item; item = item.parent) {
      if (isContainer(item) && !this.open.has(item.key)) changed = this.open.add(item.key) && true;
    }
    if (changed) this.draw();
    return inner;
  }

  /** Marks nodes as related to what was chosen, and one item as chosen. */
  light(numbers, chosen) {
    this.numbers = numbers;
    this.lit = new Set(numbers.map((number) => this.visible(number)?.key));
    this.chosen = chosen;
    for (const element of this.canvas.querySelectorAll("[data-key], .edge")) this.colour(element);
  }

  /** Marks an element if its item is related to what was chosen, or is it; an edge that leads to what was chosen or from it. */
  colour(element) {
    const { key, from, to } = element.dataset;
    element.classList.toggle("lit", key === undefined ? this.chosen !== null && [from, to].includes(this.chosen) : this.lit.has(key));
    element.classList.toggle("chosen", key !== undefined && key === this.chosen);
    return element;
  }

  /** Moves an item to a height on the screen, so that it is beside its like in the other pane. */
  align(item, top) {
    const box = this.boxOf(item);
    const frame = this.svg.getBoundingClientRect();
    const x = frame.x + frame.width / 2 - (box.x + box.width / 2);
    this.move(box.width < frame.width && box.x >= frame.x && box.right <= frame.right ? 0 : x, top - box.y);
  }

  center(item) {
    const box = this.boxOf(item);
    const frame = this.svg.getBoundingClientRect();
    this.move(frame.x + frame.width / 2 - (box.x + box.width / 2), frame.y + Math.max(20, frame.height / 2 - box.height / 2) - box.y);
  }

  fit() {
    const { width, height } = this.tree.root.area;
    const frame = this.svg.getBoundingClientRect();
    if (!frame.width || !width) return;
    // Letters that nobody can read are no overview.
    this.scale = Math.min(1, Math.max(0.5, Math.min((frame.width - 24) / width, (frame.height - 24) / height)));
    const free = (frame.width - width * this.scale) / 2;
    this.offset = { x: free, y: 12 };
    this.apply();
  }

  zoom(factor, around = null) {
    const frame = this.svg.getBoundingClientRect();
    const x = around ? around.x - frame.x : frame.width / 2;
    const y = around ? around.y - frame.y : frame.height / 2;
    const scale = Math.min(4, Math.max(0.03, this.scale * factor));
    this.offset = { x: x - ((x - this.offset.x) * scale) / this.scale, y: y - ((y - this.offset.y) * scale) / this.scale };
    this.scale = scale;
    this.apply();
  }

  move(x, y) {
    this.offset = { x: this.offset.x + x, y: this.offset.y + y };
    this.apply();
  }

  apply() {
    this.canvas.setAttribute("transform", `translate(${this.offset.x} ${this.offset.y}) scale(${this.scale})`);
    this.canvas.classList.toggle("far", this.scale < FAR);
    this.uncoverView();
  }

  enableMoving() {
    this.svg.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey || !event.shiftKey) this.zoom(Math.exp(-event.deltaY * 0.0015), event);
        else this.move(-event.deltaY, 0);
      },
      { passive: false },
    );
    let last = null;
    let moved = 0;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button === 0) [last, moved] = [event, 0];
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!last || !(event.buttons & 1)) return;
      const [x, y] = [event.clientX - last.clientX, event.clientY - last.clientY];
      moved += Math.abs(x) + Math.abs(y);
      if (moved > 4 && !this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
      last = event;
      this.move(x, y);
    });
    // What was a movement is no click.
    const swallow = (event) => {
      if (moved > 4) event.stopPropagation();
      moved = 0;
    };
    this.svg.addEventListener("click", swallow, { capture: true });
    this.svg.addEventListener("pointerup", () => (last = null));
  }
}
