// Formulas of the page's tools as functions of their names. They come as text in the page, which no
// script of the site runs: sums, products, powers and functions of Math are read here.
(function () {
  "use strict";

  const TOKEN = /\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?:Math\.([a-z]+[0-9]*))|([A-Za-z_]\w*)|([-+*\/(),]))/y;
  const FUNCTIONS = new Set(["max", "min", "sqrt", "pow", "ceil", "floor", "abs", "log2", "exp"]);

  function tokens(text) {
    const found = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < text.trimEnd().length) {
      const match = TOKEN.exec(text);
      if (!match) throw new Error("not a formula: " + text);
      found.push(match);
    }
    return found;
  }

  // The formula as a function of an object with its names.
  window.formula = (text) => {
    const rest = tokens(text);
    const sees = (sign) => rest.length > 0 && rest[0][4] === sign;
    const take = (sign) => {
      if (!sees(sign)) throw new Error("not a formula: " + text);
      rest.shift();
    };

    function sum() {
      let left = product();
      while (sees("+") || sees("-")) {
        const [a, sign, b] = [left, rest.shift()[4] === "+" ? 1 : -1, product()];
        left = (at) => a(at) + sign * b(at);
      }
      return left;
    }

    function product() {
      let left = signed();
      while (sees("*") || sees("/")) {
        const [a, times, b] = [left, rest.shift()[4] === "*", signed()];
        left = times ? (at) => a(at) * b(at) : (at) => a(at) / b(at);
      }
      return left;
    }

    function signed() {
      if (!sees("-")) return value();
      rest.shift();
      const inner = signed();
      return (at) => -inner(at);
    }

    function value() {
      if (sees("(")) {
        rest.shift();
        const inner = sum();
        take(")");
        return inner;
      }
      const [, number, called, name] = rest.shift() || [];
      if (number) return () => Number(number);
      if (called) return call(called);
      if (!name) throw new Error("not a formula: " + text);
      return (at) => {
        if (!Object.hasOwn(at, name)) throw new Error("a formula asks for " + name);
        return at[name];
      };
    }

    function call(name) {
      if (!FUNCTIONS.has(name)) throw new Error("a formula calls " + name);
      const parts = [];
      take("(");
      do parts.push(sum()); while (sees(",") && rest.shift());
      take(")");
      return (at) => Math[name](...parts.map((part) => part(at)));
    }

    const whole = sum();
    if (rest.length) throw new Error("not a formula: " + text);
    return whole;
  };
})();
