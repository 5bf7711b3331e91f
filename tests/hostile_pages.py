"""Sixty texts that would run something, were a renderer, a theme or a build to let them.

Each sets ``ran`` in a browser, or makes the file ``RAN`` while the site is built.
"""

from __future__ import annotations

RAN = "ran.marker"
_RUN = "ran=1"
_SCRIPT = f"<script>{_RUN}</script>"
_IMAGE = f'<img src="x" onerror="{_RUN}">'
_LINE = "\u2028"

#: Python that a directive would load as an extension of griffe.
EXTENSION = f"from pathlib import Path\nPath(__file__).with_name({RAN!r}).write_text('ran')\n"


def _directive(first: str, rest: str) -> str:
    """A directive of mkdocstrings that loads ``{file}``, its lines with what stands before each."""
    return f"{first}::: mla_var3.errors\n{rest}options:\n{rest}  extensions: [{{file}}]\n"


#: What the build itself would run.
DIRECTIVES = {
    "mkdocstrings": _directive("", "    "),
    "in a list": _directive("- text\n\n    ", "        "),
    "quoted": _directive("> ", ">     "),
    "with a heading": _directive("## ", "    "),
    "a definition": _directive("term\n:   ", "        "),
    "details": _directive("??? note\n    ", "        "),
}

#: What would bring in a file, or a value of the build.
INCLUDES = {
    "snippet": '--8<-- "{file}"',
    "snippet of lines": '-8<- "{file}:1:2"',
    "snippets": "--8<--\n{file}\n--8<--",
    "macro": '{% include "{file}" %}',
    "macro without blanks": '{%- include "{file}" -%}',
}

#: What a browser would run.
TEXTS = {
    "script": _SCRIPT,
    "script in capitals": f"<SCRIPT>{_RUN}</SCRIPT>",
    "script over lines": f"<script\n>{_RUN}\n</script\n>",
    "script without an end": f"<script>{_RUN}//",
    "script of a slash": f"<script/x>{_RUN}</script>",
    "script inside a script": f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    "script as data": f'<script type="text/javascript" data-x="application/json">{_RUN}</script>',
    "module": f'<script type="module">{_RUN}</script>',
    "script of another host": '<script src="https://evil.test/x.js"></script>',
    "script from data": f'<script src="data:text/javascript,{_RUN}"></script>',
    "image": _IMAGE,
    "image with a slash": f"<img/src=x/onerror={_RUN}>",
    "image with a quote": f'<img src="x" title="a>b" onerror="{_RUN}">',
    "image in a word": f"speed{_IMAGE}of light",
    "svg": f"<svg onload='{_RUN}'>",
    "svg script": f"<svg><script>{_RUN}</script></svg>",
    "svg animation": f'<svg><animate onbegin="{_RUN}" attributeName=x dur=1s></svg>',
    "svg set": f'<svg><a><set attributeName=href to="javascript:{_RUN}"/><text>x</text></a></svg>',
    "svg use": f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{_RUN}'/>#x\"/></svg>",
    "foreign object": f"<svg><foreignObject>{_IMAGE}</foreignObject></svg>",
    "math": f'<math><mi xlink:href="javascript:{_RUN}">x</mi></math>',
    "mutation": f"<svg></p><style><a id=\"</style>{_IMAGE}\">",
    "mutation of math": f"<math><mtext><table><mglyph><style><!--</style>{_IMAGE}-->",
    "noscript": f'<noscript><p title="</noscript>{_IMAGE}"></noscript>',
    "frame": f"<iframe srcdoc=\"<script>parent.{_RUN}</script>\"></iframe>",
    "frame of an address": f'<iframe src="javascript:parent.{_RUN}"></iframe>',
    "object": f'<object data="javascript:{_RUN}"></object>',
    "embed": f'<embed src="javascript:{_RUN}">',
    "base": '<base href="https://evil.test/">',
    "refresh": f'<meta http-equiv="refresh" content="0;url=javascript:{_RUN}">',
    "link": '<link rel="stylesheet" href="https://evil.test/x.css">',
    "import of a style": "<style>@import url(https://evil.test/x.css);</style>",
    "form": f'<form action="javascript:{_RUN}"><button>go</button></form>',
    "action of a button": f'<button formaction="javascript:{_RUN}" autofocus>go</button>',
    "focus": f"<input autofocus onfocus='{_RUN}'>",
    "details": f"<details open ontoggle='{_RUN}'><summary>x</summary></details>",
    "video": f"<video><source onerror='{_RUN}'></video>",
    "audio": f"<audio src=x onerror='{_RUN}'>",
    "marquee": f"<marquee onstart='{_RUN}'>x</marquee>",
    "body": f"<body onload='{_RUN}'>",
    "template": f"<template><script>{_RUN}</script></template>",
    "comment": f"<!--> {_SCRIPT} -->",
    "conditional comment": f"<!--[if true]>{_SCRIPT}<![endif]-->",
    "instruction": f"<?xml {_SCRIPT}?>",
    "declaration": f"<!x {_SCRIPT}>",
    "cdata": f"<![CDATA[{_SCRIPT}]]>",
    "link that runs": f"[x](javascript:{_RUN})",
    "link in capitals": f"[x](JaVaScRiPt:{_RUN})",
    "link with an entity": f"[x](&#106;avascript:{_RUN})",
    "link with a line break": f"[x](<java\nscript:{_RUN}>)",
    "link by reference": f"[x][y]\n\n[y]: javascript:{_RUN}",
    "link of data": f"[x](data:text/html,{_SCRIPT})",
    "link by itself": f"<javascript:{_RUN}>",
    "image that runs": f"![x](javascript:{_RUN})",
    "attribute list": f"# title {{: onclick={_RUN} onmouseover={_RUN} }}",
    "attribute list in a string": f"[x](y){{: title=\"}}\" onclick=\"{_RUN}\" }}",
    "fence in a list": f"- item\n\n    ```\n    code\n    ```\n{_SCRIPT}\n",
    "unindented fence": f"- item\n\n    ```\n{_SCRIPT}\n    ```\n",
    "fence of another line": f"``` x{_LINE}y\n{_SCRIPT}\n```\n",
    "fence of tildes": f"~~~ x`y\n```\n~~~\n{_SCRIPT}\n```\n",
    "span over lines": f"`` x\n{_IMAGE} ` y ``` z\n",
    "markdown in html": f'<div markdown="1" onmouseover="{_RUN}">\n\n{_SCRIPT}\n\n</div>',
    "table": f"| a | b |\n|---|---|\n| {_IMAGE} | ` | {_IMAGE} | ` |\n",
    "control": f"\x02{_IMAGE}\x03",
}  # fmt: skip
