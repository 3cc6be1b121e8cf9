"""What a program did, as objects: segments, kernels and the operators in each, bytes, times, and what was not fused and why."""
from __future__ import annotations

from typing import Any


class Kernel:
    """One launch of each run (or, with `once`, of the making of the program).

    name         of the function in the generated source, "k_..."
    kind         "map" elementwise, "rows" with reductions along an axis, "dot" a contraction, "scan", "scatter", "call" a C function
    operators    the model's operators in it, "LayerNormalization ln_1"
    read_bytes, write_bytes   logical: each buffer once, at the last run's sizes
    once         it depends on constants only, so it ran once
    generated    generated code; else a function of the library or the interpreter
    ms           its time, if it was measured; else None
    """
    __slots__ = ("name", "kind", "operators", "read_bytes", "write_bytes", "once", "interpreted", "generated", "ms", "source")

    def __init__(self, data: dict[str, Any]) -> None:
        self.name: str = data["name"]
        self.kind: str = data["kind"]
        self.operators: list[str] = data["operators"]
        self.read_bytes: int = data["read_bytes"]
        self.write_bytes: int = data["write_bytes"]
        self.once: bool = data["once"]
        self.interpreted: bool = data["interpreted"]
        self.generated: bool = data["generated"]
        self.ms: float | None = data["ms"]
        self.source: str | None = data.get("source")

    def __repr__(self) -> str:
        return f"<Kernel {self.name} {self.kind}: {', '.join(self.operators)}>"


class Segment:
    """A piece of the model between two places where the program had to look at data.

    launches     of each run
    temp_bytes, const_bytes   memory for intermediate results; results kept of kernels that ran once
    guards       for which sizes and values it holds
    refusals     "cannot fuse Relu relu_3 into Conv conv_4: reason"
    rewrites     rules that were applied, "mul_one 3 times: a product with one"; rewrites_idle: those of a file that were not, and why
    ends_because why it ends; None for the last one
    """
    __slots__ = ("kernels", "launches", "temp_bytes", "const_bytes", "guards", "refusals", "rewrites", "rewrites_idle", "ends_because",
                 "import_ms", "plan_ms", "print_ms", "build_ms")

    def __init__(self, data: dict[str, Any]) -> None:
        self.kernels = [Kernel(k) for k in data["kernels"]]
        self.launches: int = data["launches"]
        self.temp_bytes: int = data["temp_bytes"]
        self.const_bytes: int = data["const_bytes"]
        self.guards: list[str] = data["guards"]
        self.refusals: list[str] = data.get("refusals", [])
        self.rewrites: list[str] = data.get("rewrites", [])
        self.rewrites_idle: list[str] = data.get("rewrites_idle", [])
        self.ends_because: str | None = data["ends_because"]
        self.import_ms: float = data["import_ms"]
        self.plan_ms: float = data["plan_ms"]
        self.print_ms: float = data["print_ms"]
        self.build_ms: float = data["build_ms"]

    def __repr__(self) -> str:
        return f"<Segment of {len(self.kernels)} kernels>"


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:
            return f"{n:.0f} {unit}" if unit == "B" or n >= 99.95 else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


class Evidence:
    """What the last run (or prepare) did. `print()` gives the report that `sinter explain` prints; a notebook draws a table.

    device       "AMD EPYC, 2 threads, avx512, cc 12.2.0"
    launches     kernels of each run
    operators, operators_generated   of the model; those of which all is done by generated kernels
    read_bytes, write_bytes   logical, of all launches of a run
    temp_peak    bytes of memory for intermediate results
    variants     how many sets of kernels were compiled so far
    segments     a list of Segment
    """
    __slots__ = ("device", "compiler", "variants", "launches", "operators", "operators_generated", "read_bytes", "write_bytes", "temp_peak",
                 "segments", "text", "data")

    def __init__(self, data: dict[str, Any], text: str) -> None:
        self.device: str = data["device"]
        self.compiler: str | None = data["compiler"]
        self.variants: int = data["variants"]
        self.launches: int = data["launches"]
        self.operators: int = data["operators"]
        self.operators_generated: int = data["operators_generated"]
        self.read_bytes: int = data["read_bytes"]
        self.write_bytes: int = data["write_bytes"]
        self.temp_peak: int = data["temp_peak"]
        self.segments = [Segment(s) for s in data["segments"]]
        self.text = text
        self.data = data

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of all segments, in the order in which they run."""
        return [k for s in self.segments for k in s.kernels]

    @property
    def refusals(self) -> list[str]:
        """What was not fused, and why, of all segments."""
        return [r for s in self.segments for r in s.refusals]

    def __repr__(self) -> str:
        return (f"<Evidence: {self.launches} launches, {self.operators_generated} of {self.operators} operators in generated kernels, "
                f"{_bytes(self.read_bytes)} read, {_bytes(self.write_bytes)} written>")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape
        lines = ["<table><thead><tr>" + "".join(f"<th>{h}</th>" for h in ("kernel", "kind", "read", "written", "operators")) + "</tr></thead><tbody>"]
        for number, s in enumerate(self.segments, 1):
            if len(self.segments) > 1:
                lines.append(f"<tr><th colspan=5>segment {number} of {len(self.segments)}</th></tr>")
            for k in s.kernels:
                kind = "interpreted" if k.interpreted else "once" if k.once else k.kind
                cells = (f"<code>{escape(k.name)}</code>", escape(kind), _bytes(k.read_bytes), _bytes(k.write_bytes), escape(", ".join(k.operators)))
                lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
        lines.append(f"</tbody><tfoot><tr><th>each run</th><td>{self.launches} launches</td><td>{_bytes(self.read_bytes)}</td>"
                     f"<td>{_bytes(self.write_bytes)}</td><td>{self.operators_generated} of {self.operators} operators in generated kernels</td></tr></tfoot></table>")
        if self.refusals:
            lines.append("<details><summary>not fused</summary><ul>" + "".join(f"<li>{escape(r)}</li>" for r in self.refusals) + "</ul></details>")
        return "\n".join(lines)
