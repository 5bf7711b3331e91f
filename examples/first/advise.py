"""The kernel advisor's answers for a table of shapes; needs Python alone.

$ python advise.py PAGE SHAPES.csv > answers.csv
PAGE is the site's page mla/index.html, saved; SHAPES.csv has the columns b, h, s and t.
"""

import csv
import html
import json
import math
import re
import sys

#: What the form asks for besides sizes: change it to yours.
ASKED = {"device": "nvidia-h200-sxm", "cache": "flash_mla", "page": 64, "lengths": "equal"}


def far(data, shape, answer):
    """How far a measured problem is from a shape, as the page reckons it; 0 is the very same."""
    far = 0.0
    for part in data["near"]:
        ratio = math.prod(shape[a] / answer[a] for a in part["axes"])
        far += part["weight"] * abs(math.log2(ratio))
    if min(shape["s"], answer["s"]) > 1 and answer["mask"] != shape["mask"]:
        far += data["masked"]
    if far:
        found = answer["found"]
        far += 2 * found[0]["stale"] + 3 * all(one["language"] == "library" for one in found)
    return far


def advised(data, shape):
    """The fastest version at the nearest measured problem, and how sure that is."""
    like = [one for one in data["answers"] if all(one[k] == ASKED[k] for k in ASKED)]
    best = min(like, key=lambda answer: far(data, shape, answer))
    away = far(data, shape, best)
    sure = "high" if not away else "medium" if away <= 2 and best["h"] == shape["h"] else "low"
    at = " ".join(f"{axis}={best[axis]}" for axis in "bhst")
    return best["found"][0]["version"], best["found"][0]["us"], at, sure


def main(page, shapes):
    """Write a row per shape."""
    with open(page, encoding="utf-8") as text:
        spec = re.search(r'data-measured="([^"]*)"', text.read())[1]
    data = json.loads(html.unescape(spec))
    out = csv.writer(sys.stdout)
    out.writerow([*"bhst", "version", "us", "measured at", "confidence"])
    with open(shapes, newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            sizes = {axis: int(row[axis]) for axis in "bhst"}
            shape = {**sizes, "mask": "none" if sizes["s"] == 1 else "causal"}
            out.writerow([*sizes.values(), *advised(data, shape)])


if __name__ == "__main__":
    main(*sys.argv[1:])
