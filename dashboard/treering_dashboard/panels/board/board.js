// The board: panels over one x, drawn by uPlot, which stands above this text in the same module.
//
// The server sends what is drawn, see `wire.py`; the browser answers with a window of x, a step's x, a panel's scale.

const GUTTER = 46;
const SPIKE = "#D55E00";
const GREY = "#8C8C8C";
const NEAR = 6; // pixels within which the pointer is at a mark
const WAIT = 200; // milliseconds from a zoom to the question for full detail

const PATIENCE = 3000; // milliseconds in which an answer may still be about the window before
const COLUMNS = ["x", "y", "step", "segment", "lo", "hi", "bad", "value", "tokens"]; // of a line
const CHANGING = ["log", "latest", "spikes", "alarms", "limits", "cut", "note"]; // of a panel; another one needs no new plot

const boards = new WeakMap();

export default function draw({ parentElement, data, setStateValue }) {
  let board = boards.get(parentElement);
  if (!board) boards.set(parentElement, (board = new Board(parentElement)));
  // A state, not a trigger: what is asked while the server answers something else is not lost. The time tells two apart.
  board.ask = (name, value) => setStateValue(name, { value, at: performance.now() });
  board.receive(data);

  const turn = (board.turn = (board.turn || 0) + 1);
  return () => {
    if (board.turn !== turn) return; // it was drawn again since
    board.clear();
    board.root.remove();
    boards.delete(parentElement);
  };
}

/* Numbers as text */

function trimmed(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function plain(value, digits) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    const [mantissa, power] = value.toExponential(Math.max(0, digits - 1)).split("e");
    return `${trimmed(mantissa)}e${Number(power)}`;
  }
  return trimmed(value.toFixed(Math.max(0, Math.min(9, digits - 1 - (size ? Math.floor(Math.log10(size)) : 0)))));
}

function prefixed(value, digits) {
  for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= factor) return `${plain(value / factor, digits)} ${prefix}`;
  return plain(value, digits);
}

function text(value, format, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  if (format === "percent") return `${plain(100 * value, digits)} %`;
  return format === "prefix" ? prefixed(value, digits) : plain(value, digits);
}

function whole(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/* Ticks of a log axis: of 1, 2 and 5, or decades */

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const step of [1, 2, 5]) {
      const tick = step * 10 ** power;
      if (tick >= low && tick <= high) found.push(tick);
    }
  if (found.length <= 6) return found;
  const decades = found.filter((tick) => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9);
  const stride = Math.ceil(decades.length / 5);
  return decades.filter((_, index) => index % stride === 0);
}

/* The nearest row of a line */

function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

/* The tables that uPlot draws: a restart or a value that is no number ends a line */

function tablesOf(line, log) {
  const tables = [];
  let table = null;
  let broken = false;
  for (let row = 0; row < line.x.length; row++) {
    const x = line.x[row];
    const value = line.y[row];
    const drawn = Number.isFinite(value) && !(log && value <= 0);
    const seam = row > 0 && line.segment[row] !== line.segment[row - 1];
    if (!table || (seam && x <= table[0][table[0].length - 1])) {
      tables.push((table = line.lo ? [[], [], [], []] : [[], []]));
      broken = false;
    } else if (seam) broken = true;
    if (!drawn) {
      broken = broken || Boolean(line.bad && line.bad[row] > 0) || value <= 0;
      continue;
    }
    if (broken && table[0].length) {
      table[0].push((table[0][table[0].length - 1] + x) / 2);
      for (let column = 1; column < table.length; column++) table[column].push(null);
    }
    broken = false;
    table[0].push(x);
    table[1].push(value);
    if (line.lo) {
      table[2].push(log ? Math.max(line.lo[row], Number.MIN_VALUE) : line.lo[row]);
      table[3].push(line.hi[row]);
    }
  }
  return tables.filter((each) => each[0].length);
}

function faded(colour, opacity) {
  return colour + Math.round(opacity * 255).toString(16).padStart(2, "0");
}

class Board {
  constructor(parent) {
    this.parent = parent;
    this.arrays = new Map();
    this.scales = new Map(); // that a visitor chose, where the page does not keep them
    this.token = "";
    this.plots = [];
    this.overview = null;
    this.shape = "";
    this.root = document.createElement("div");
    this.root.className = "board";
    this.root.setAttribute("role", "group");
    this.root.innerHTML =
      '<div class="bar"><span class="here"></span><button class="reset" hidden>Reset zoom</button></div>' +
      '<div class="groups"></div><div class="overview"></div>';
    parent.appendChild(this.root);
    this.here = this.root.querySelector(".here");
    this.reset = this.root.querySelector(".reset");
    this.reset.onclick = () => this.zoom(null);
    this.groups = this.root.querySelector(".groups");
    this.strip = this.root.querySelector(".overview");
    new ResizeObserver(() => this.resize()).observe(this.root);
  }

  /* What the server sent */

  receive(data) {
    if (!data || !data.length) return;
    if (this.held) {
      this.later = data;
      return;
    }
    const bytes = new Uint8Array(data);
    const size = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    if (head.token !== this.token) {
      if (head.base && head.base !== this.token) {
        // A hidden tab or a slow one renders the last of several messages alone, so it lacks what the others had.
        setTimeout(() => this.ask("resync", head.token), 0);
        return;
      }
      this.take(head, bytes.slice(4 + size).buffer);
    }
    const shape = JSON.stringify([head.groups, head.panels], (key, value) =>
      CHANGING.includes(key) || (COLUMNS.includes(key) && key !== "lo") ? undefined : key === "lo" ? true : value,
    );
    this.head = head;
    this.root.setAttribute("aria-label", head.alt);
    for (const panel of head.panels) if (!head.asks && this.scales.has(panel.title)) panel.log = this.scales.get(panel.title);
    for (const panel of head.panels)
      for (const line of panel.lines)
        for (const name of COLUMNS)
          if (typeof line[name] === "string") line[name] = this.arrays.get(line[name]);
    if (Date.now() > (this.until || 0) || this.agrees(head.x.window)) {
      this.window = head.x.window;
      this.until = 0;
    }
    if (shape !== this.shape || this.colour() !== this.inked) this.build();
    else this.renew();
    this.shape = shape;
  }

  take(head, buffer) {
    const values = new Float64Array(buffer);
    const arrays = new Map();
    let at = 0;
    for (const [name, [keep, count]] of Object.entries(head.arrays)) {
      const array = new Float64Array(keep + count);
      if (keep) array.set(this.arrays.get(name).subarray(0, keep));
      array.set(values.subarray(at, at + count), keep);
      arrays.set(name, array);
      at += count;
    }
    this.arrays = arrays;
    this.token = head.token;
  }

  colour() {
    return getComputedStyle(this.root).color;
  }

  limits() {
    return this.window || this.head.x.extent;
  }

  clear() {
    for (const plot of this.plots) plot.u.destroy();
    this.plots = [];
    if (this.overview) this.overview.destroy();
    this.overview = null;
    this.groups.replaceChildren();
    this.strip.replaceChildren();
  }

  build() {
    this.clear();
    this.pointer = null;
    this.inked = this.colour();
    this.sync = uPlot.sync(`board-${Math.random()}`);
    const boxes = this.head.groups.map((group) => {
      const box = document.createElement("div");
      box.className = "group";
      if (group.title) box.append(Object.assign(document.createElement("h6"), { textContent: group.title }));
      return box;
    });
    this.groups.append(...boxes); // all of them first: the widths depend on how many there are
    this.head.groups.forEach((group, number) => {
      for (const index of group.panels)
        this.plots.push(new Plot(this, boxes[number], index, index === group.panels[group.panels.length - 1]));
    });
    if (this.head.overview) this.drawOverview();
    this.settle();
  }

  renew() {
    for (const plot of this.plots) plot.renew();
    if (this.overview) this.overview.setData(this.overviewData());
    this.settle();
  }

  /* After a change of data or of the window */

  settle() {
    this.reset.hidden = !this.window;
    this.strip.classList.toggle("part", Boolean(this.window));
    this.markWindow();
    setTimeout(() => this.point(this.pointer), 0); // the plots have their new scales only then
    this.root.dataset.last = String(this.head.x.extent[1]); // that it was drawn, for who looks from outside
  }

  resize() {
    for (const plot of this.plots) plot.resize();
    if (this.overview && this.strip.clientWidth && this.strip.clientWidth !== this.overview.width) {
      this.overview.setSize({ width: this.strip.clientWidth, height: 44 });
    }
  }

  /* Zoom */

  agrees(window) {
    if (!window || !this.window) return !window && !this.window;
    const [low, high] = this.window;
    return Math.abs(window[0] - low) + Math.abs(window[1] - high) < 0.1 * (high - low);
  }

  zoom(window) {
    this.show(window);
    if (!this.head.asks) return;
    this.until = Date.now() + PATIENCE;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask("zoom", window), WAIT);
  }

  show(window) {
    this.window = window;
    for (const plot of this.plots) plot.show();
    this.settle();
  }

  /* While a window is moved, what the server sends waits */

  hold() {
    this.held = true;
  }

  release() {
    this.held = false;
    this.zoom(this.window);
    const data = this.later;
    this.later = null;
    this.receive(data);
  }

  overviewData() {
    const line = this.head.panels[this.head.overview[0]].lines[this.head.overview[1]];
    const whole = this.head.whole;
    const xs = whole ? this.arrays.get(whole.x) : line.x;
    const ys = whole ? this.arrays.get(whole.y) : line.y;
    const log = this.head.panels[this.head.overview[0]].log;
    return [Array.from(xs), Array.from(ys, (y) => (Number.isFinite(y) && !(log && y <= 0) ? y : null))];
  }

  drawOverview() {
    const board = this;
    const panel = this.head.panels[this.head.overview[0]];
    const moved = (u, handler) => (event) => {
      const { left, width } = u.select;
      const at = event.clientX - u.over.getBoundingClientRect().left;
      if (!board.window || at < left || at > left + width) return handler(event);
      const [low, high] = board.window;
      const begin = event.clientX;
      const [first, last] = board.head.x.extent;
      const follow = (next) => {
        const shift = u.posToVal(next.clientX - begin, "x") - u.posToVal(0, "x");
        const by = Math.max(first - low, Math.min(last - high, shift));
        board.show([low + by, high + by]);
      };
      const drop = () => {
        board.release();
        document.removeEventListener("mousemove", follow);
        document.removeEventListener("mouseup", drop);
      };
      board.hold();
      document.addEventListener("mousemove", follow);
      document.addEventListener("mouseup", drop);
      return null;
    };
    this.overview = new uPlot(
      {
        width: this.strip.clientWidth || 600,
        height: 44,
        legend: { show: false },
        padding: [2, 8, 2, 0],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          points: { show: false },
          bind: { mousedown: (u, target, handler) => moved(u, handler), dblclick: () => null },
        },
        scales: {
          x: { time: false, range: () => board.head.x.extent },
          y: { distr: panel.log ? 3 : 1, range: (u, low, high) => [low, high > low ? high : low + 1] },
        },
        axes: [{ show: false }, { size: GUTTER, grid: { show: false }, ticks: { show: false }, values: () => [] }],
        series: [{}, { stroke: panel.lines[this.head.overview[1]].colour, width: 1, points: { show: false } }],
        hooks: {
          ready: [() => board.markWindow()],
          setSize: [() => board.markWindow()],
          setSelect: [(u) => u.select.width > 2 && board.zoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")])],
        },
      },
      this.overviewData(),
      this.strip,
    );
    this.overview.over.addEventListener("dblclick", () => board.zoom(null));
  }

  markWindow() {
    const u = this.overview;
    if (!u || u.status === 0) return; // it calls again when it is ready
    const [low, high] = this.limits();
    const left = this.window ? u.valToPos(low, "x") : 0;
    const width = this.window ? u.valToPos(high, "x") - left : 0;
    u.setSelect({ left, top: 0, width, height: u.over.clientHeight }, false);
  }

  /* The crosshair's readout */

  point(pointer) {
    this.pointer = pointer;
    this.say(pointer ? pointer.u.posToVal(pointer.left, "x") : null);
  }

  say(x) {
    for (const plot of this.plots) plot.read(x);
    const head = this.head;
    if (x === null) {
      this.here.textContent = head.rest;
      return;
    }
    const parts = [];
    const first = head.panels.flatMap((panel) => panel.lines).find((line) => !line.muted && line.x.length);
    if (first) {
      const row = nearest(first.x, x);
      parts.push(`step ${whole(first.step[row])}`);
      if (first.tokens) parts.push(`${prefixed(first.tokens[row], 4)} tokens`);
    }
    if (head.x.column !== "step" && head.x.column !== "tokens") parts.push(`${text(x, head.x.format)} ${head.x.unit}`);
    const pixel = this.plots.length ? this.plots[0].u.posToVal(NEAR, "x") - this.plots[0].u.posToVal(0, "x") : 0;
    for (const [at, label] of [...head.restarts, ...head.incidents, ...head.panels.flatMap((each) => each.spikes)])
      if (Math.abs(at - x) <= pixel) parts.push(label);
    this.here.textContent = [...new Set(parts)].join("  ·  ");
  }
}

class Plot {
  constructor(board, parent, index, lowest) {
    this.board = board;
    this.index = index;
    this.lowest = lowest;
    this.box = document.createElement("div");
    this.box.className = "panel";
    this.box.setAttribute("role", "group");
    this.box.innerHTML =
      '<div class="head"><span class="title"></span><span class="unit"></span><span class="note"></span><button></button></div><div class="values"></div><div class="plot"></div><p class="cut"></p>';
    parent.append(this.box);
    const panel = this.panel;
    this.box.querySelector(".title").textContent = panel.title;
    this.box.querySelector(".unit").textContent = panel.unit;
    this.toggle = this.box.querySelector("button");
    this.note = this.box.querySelector(".note");
    this.values = this.box.querySelector(".values");
    this.holder = this.box.querySelector(".plot");
    this.cut = this.box.querySelector(".cut");
    this.toggle.onclick = () => this.switchScale();
    this.draw();
  }

  get panel() {
    return this.board.head.panels[this.index];
  }

  switchScale() {
    this.panel.log = !this.panel.log;
    this.board.pointer = null;
    this.board.scales.set(this.panel.title, this.panel.log);
    if (this.board.head.asks) this.board.ask("scale", { title: this.panel.title, log: this.panel.log });
    this.u.destroy();
    this.draw();
    this.read(null);
  }

  data() {
    const tables = [];
    this.places = [];
    for (const line of this.panel.lines) {
      const found = tablesOf(line, this.panel.log);
      if (!found.length) found.push(line.lo ? [[], [], [], []] : [[], []]);
      for (const table of found) {
        this.places.push(line);
        tables.push(table);
      }
    }
    if (tables.length === 1) return tables[0];
    return uPlot.join(tables, tables.map((table) => table.map(() => 1)));
  }

  draw() {
    const { board, panel } = this;
    const data = this.data();
    const series = [{}];
    const bands = [];
    for (const line of this.places) {
      const alone = line.x.length === 1;
      series.push({
        stroke: line.muted ? faded(line.colour, 0.5) : line.colour,
        width: line.muted ? 1 : 1.5,
        dash: line.dashed ? [5, 3] : undefined,
        points: { show: line.points || alone, size: 5, fill: line.colour },
      });
      if (line.lo) {
        const edge = { stroke: "transparent", width: 0, points: { show: false } };
        series.push({ ...edge }, { ...edge });
        const fill = faded(line.colour, line.layer ? 0.6 : line.points ? 0.15 : 0.25);
        bands.push({ series: [series.length - 1, series.length - 2], fill });
      }
    }
    this.count = series.length;
    this.log = panel.log;
    const ink = board.inked;
    const grid = { stroke: faded(GREY, 0.25), width: 1 };
    this.u = new uPlot(
      {
        width: Math.max(120, this.holder.clientWidth),
        height: panel.height + (this.lowest ? 34 : 6),
        legend: { show: false },
        padding: [6, 8, 0, 0],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          sync: {
            key: board.sync.key,
            scales: ["x", null],
            setSeries: false,
            filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
          },
          points: { size: 6, one: false },
          dataIdx: (u, number, index, x) => (number ? this.rowAt(number, index, x) : index),
          bind: { dblclick: () => null },
        },
        scales: {
          x: { time: false, range: () => board.limits() },
          y: { distr: panel.log ? 3 : 1, range: (u, low, high) => this.range(low, high) },
        },
        series,
        bands,
        axes: [
          {
            show: true,
            size: this.lowest ? 18 : 6,
            stroke: ink,
            font: `10px ${getComputedStyle(board.root).fontFamily}`,
            label: this.lowest ? board.head.x.title : undefined,
            labelSize: 14,
            labelGap: 0,
            labelFont: `11px ${getComputedStyle(board.root).fontFamily}`,
            gap: 2,
            space: 60,
            grid: { show: false },
            ticks: { show: false },
            values: (u, ticks) => (this.lowest ? ticks.map((tick) => text(tick, board.head.x.format)) : []),
          },
          {
            size: GUTTER,
            stroke: ink,
            font: `10px ${getComputedStyle(board.root).fontFamily}`,
            gap: 3,
            space: 24,
            grid,
            ticks: { show: false },
            splits: panel.log ? (u, axis, low, high) => this.logSplits(low, high) : undefined,
            filter: (u, ticks) => ticks,
            values: (u, ticks) => ticks.map((tick) => this.tick(tick, ticks)),
          },
        ],
        hooks: {
          drawAxes: [(u) => this.rules(u)],
          draw: [(u) => this.marks(u)],
          setSelect: [(u) => this.selected(u)],
        },
      },
      data,
      this.holder,
    );
    this.u.over.addEventListener("dblclick", () => board.zoom(null));
    this.u.over.addEventListener("mousemove", (event) => board.point({ u: this.u, left: this.leftOf(event) }));
    this.u.over.addEventListener("mouseleave", () => board.point(null));
    this.u.over.addEventListener("mousedown", (event) => (this.pressed = event.clientX));
    this.u.over.addEventListener("click", (event) => this.clicked(event));
    this.describe();
  }

  renew() {
    const data = this.data();
    const width = this.places.reduce((sum, line) => sum + (line.lo ? 3 : 1), 1);
    if (width !== this.count || this.panel.log !== this.log) {
      if (this.board.pointer && this.board.pointer.u === this.u) this.board.pointer = null;
      this.u.destroy();
      this.draw();
      return;
    }
    this.u.setData(data, true);
    this.describe();
  }

  describe() {
    const { panel } = this;
    this.toggle.textContent = panel.log ? "log" : "linear";
    this.toggle.setAttribute("aria-label", `${panel.title}: ${panel.log ? "logarithmic" : "linear"} scale, switch`);
    this.cut.textContent = [panel.cut, panel.note].filter(Boolean).join("  ·  ");
    this.cut.hidden = !this.cut.textContent;
    const lines = panel.lines.filter((line) => !line.muted).map((line) => `${line.label} ${line.latest}`.trim());
    this.box.setAttribute("aria-label", `${panel.title}: ${lines.join(", ")}`);
  }

  show() {
    const [min, max] = this.board.limits();
    this.u.setScale("x", { min, max });
  }

  resize() {
    const width = this.holder.clientWidth;
    if (width && width !== this.u.width) this.u.setSize({ width, height: this.u.height });
  }

  /* Scales */

  range(low, high) {
    const { panel } = this;
    if (panel.limits) [low, high] = panel.limits;
    if (low == null || high == null || !Number.isFinite(low) || !Number.isFinite(high)) return panel.log ? [1, 10] : [0, 1];
    if (panel.log) {
      const pad = Math.max(0.03 * Math.log10(high / low), 0.01);
      return [low * 10 ** -pad, high * 10 ** pad];
    }
    if (panel.zero) low = Math.min(0, low);
    const pad = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
    return [panel.zero && low === 0 ? 0 : low - pad, high + pad];
  }

  logSplits(low, high) {
    const found = logTicks(low, high);
    if (found.length >= 2) return found;
    const step = 10 ** Math.floor(Math.log10((high - low) / 2));
    const ticks = [];
    const stride = step * Math.max(1, Math.ceil((high - low) / step / 4));
    for (let tick = Math.ceil(low / stride) * stride; tick <= high; tick += stride) ticks.push(tick);
    return ticks;
  }

  tick(value, ticks) {
    const { panel } = this;
    const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 0;
    const apart = step > 0 ? Math.ceil(Math.log10(Math.max(Math.abs(value), step) / step)) + 2 : 3;
    return text(value, panel.format, panel.log ? 4 : Math.max(3, Math.min(9, apart)));
  }

  /* Marks */

  rules(u) {
    const { context, board, panel } = { context: u.ctx, board: this.board, panel: this.panel };
    const [low, high] = board.limits();
    const rule = (x, colour, dash, width) => {
      if (x < low || x > high) return;
      const at = Math.round(u.valToPos(x, "x", true));
      context.beginPath();
      context.strokeStyle = colour;
      context.lineWidth = width * uPlot.pxRatio;
      context.setLineDash(dash.map((each) => each * uPlot.pxRatio));
      context.moveTo(at, u.bbox.top);
      context.lineTo(at, u.bbox.top + u.bbox.height);
      context.stroke();
    };
    context.save();
    for (const x of panel.alarms) rule(x, faded(SPIKE, 0.35), [], 1);
    for (const [x] of board.head.restarts) rule(x, GREY, [3, 3], 1);
    if (board.head.at !== null) rule(board.head.at, board.inked, [], 1.5);
    context.restore();
  }

  marks(u) {
    const { board, panel } = this;
    const context = u.ctx;
    const ratio = uPlot.pxRatio;
    const [low, high] = board.limits();
    const shape = (x, y, points) => {
      context.beginPath();
      points.forEach(([dx, dy], index) => (index ? context.lineTo(x + dx * ratio, y + dy * ratio) : context.moveTo(x + dx * ratio, y + dy * ratio)));
      context.closePath();
      context.fill();
    };
    context.save();
    context.fillStyle = context.strokeStyle = SPIKE;
    const place = (x) => u.valToPos(x, "x", true);
    for (const [x] of board.head.incidents)
      if (x >= low && x <= high) shape(place(x), u.bbox.top + 4 * ratio, [[0, -4], [4, 0], [0, 4], [-4, 0]]);
    for (const [x, , y] of panel.spikes)
      if (x >= low && x <= high) {
        const at = Math.max(u.bbox.top + 9 * ratio, Math.min(u.valToPos(y, "y", true), u.bbox.top + u.bbox.height) - 3 * ratio);
        shape(place(x), at, [[-4, -7], [4, -7], [0, 0]]);
      }
    context.lineWidth = 2 * ratio;
    const ground = u.bbox.top + u.bbox.height - 5 * ratio;
    for (const line of panel.lines)
      for (let row = 0; row < line.x.length; row++) {
        const bad = (line.bad && line.bad[row] > 0) || (panel.log && line.y[row] <= 0);
        if (!bad || line.x[row] < low || line.x[row] > high) continue;
        const x = place(line.x[row]);
        const arm = 3 * ratio;
        context.beginPath();
        context.moveTo(x - arm, ground - arm);
        context.lineTo(x + arm, ground + arm);
        context.moveTo(x - arm, ground + arm);
        context.lineTo(x + arm, ground - arm);
        context.stroke();
      }
    context.restore();
  }

  /* The pointer */

  rowAt(number, index, x) {
    const values = this.u ? this.u.data[number] : null;
    if (!values || values[index] != null) return index;
    let before = index;
    let after = index;
    while (before >= 0 && values[before] == null) before--;
    while (after < values.length && values[after] == null) after++;
    const xs = this.u.data[0];
    if (before < 0) return after < values.length ? after : null;
    return after < values.length && xs[after] - x < x - xs[before] ? after : before;
  }

  selected(u) {
    const { left, width } = u.select;
    if (width > 3) this.board.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  clicked(event) {
    if (!this.board.head.asks || Math.abs(event.clientX - this.pressed) > 3) return;
    this.board.ask("pick", this.u.posToVal(this.leftOf(event), "x"));
  }

  leftOf(event) {
    return event.clientX - this.u.over.getBoundingClientRect().left;
  }

  /* The values at the pointer; a curve without a point there shows its nearest one, with the step */

  read(x) {
    const { panel, board } = this;
    const lines = panel.lines.filter((line) => !line.muted);
    const rows = lines.map((line) => (x === null || !line.x.length ? null : nearest(line.x, x)));
    const away = lines.map((line, index) =>
      rows[index] !== null && !line.level && Math.abs(this.u.valToPos(line.x[rows[index]], "x") - this.u.valToPos(x, "x")) > NEAR
        ? `at step ${whole(line.step[rows[index]])}`
        : "",
    );
    const together = away.length > 0 && lines.every((line, index) => line.level || (away[index] && away[index] === away[0]));
    this.note.textContent = together ? away[0] : "";
    const spans = lines.map((line, index) => {
      const span = document.createElement("span");
      const sample = document.createElement("i");
      sample.style.borderTop = `3px ${line.dashed ? "dashed" : "solid"} ${line.colour}`;
      const value = rows[index] === null ? line.latest : this.valueText(line, rows[index], lines.length);
      span.append(sample, `${line.label} ${value} ${together ? "" : away[index]}`.trim());
      return span;
    });
    this.values.replaceChildren(...spans);
    this.values.style.minHeight = `${Math.max(this.values.offsetHeight, parseFloat(this.values.style.minHeight) || 0)}px`;
  }

  valueText(line, row, lines) {
    const { format } = this.panel;
    let shown = text(line.value ? line.value[row] : line.y[row], format);
    if (line.bad && line.bad[row] > 0) shown += `, ${line.bad[row]} not drawable`;
    if (line.lo && !line.layer && lines === 1 && line.hi[row] > line.lo[row])
      shown += ` (${text(line.lo[row], format)} to ${text(line.hi[row], format)})`;
    return shown;
  }
}
