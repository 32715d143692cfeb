"""What a test reads from an SVG timeline."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from planner.report.timeline_picture import TimelinePicture
from planner.report.timeline_svg import timeline_svg

NS = "{http://www.w3.org/2000/svg}"
BOX = re.compile(r"M(-?[\d.]+) (-?[\d.]+)h(-?[\d.]+)v(-?[\d.]+)h-?[\d.]+z")


def root_of(*pictures: TimelinePicture) -> ET.Element:
    return ET.fromstring(timeline_svg(pictures))


def boxes(path: str) -> list[tuple[float, float, float, float]]:
    """(x, y, width, height) of the rectangles of a path."""
    return [tuple(map(float, found)) for found in BOX.findall(path)]  # type: ignore[misc]


def cells(root: ET.Element) -> dict[tuple[str, int], tuple[float, float, float, float]]:
    """Box of every operation by (name, rank), from its tooltip."""
    found = {}
    for path in root.iter(f"{NS}path"):
        title = path.find(f"{NS}title")
        match = re.match(
            r"(\d+[FBIW]\d+) on rank (\d+):", "" if title is None else title.text or ""
        )
        if match:
            key = (match[1], int(match[2]))
            assert key not in found, "an operation is drawn once"
            (found[key],) = boxes(path.attrib["d"])
    return found


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{NS}text")]


def filled(root: ET.Element, fill: str) -> list[ET.Element]:
    """Paths of the drawing (not of the legend) with a colour of their own."""
    return [path for path in root.iter(f"{NS}path") if path.get("fill") == fill]


def scale_and_left(root: ET.Element, picture: TimelinePicture) -> tuple[float, float]:
    """Pixels of a quantum and the pixel of time 0, from the ground of the first row."""
    ground = next(r for r in root.iter(f"{NS}rect") if r.find(f"{NS}title") is not None)
    return float(ground.attrib["width"]) / picture.total, float(ground.attrib["x"])


def curves(root: ET.Element, picture: TimelinePicture) -> list[list[tuple[float, float]]]:
    """(x, y) of the steps of each rank's memory line."""
    (path,) = (
        p.attrib["d"]
        for p in root.iter(f"{NS}path")
        if p.get("fill") == "none" and re.match(r"M[\d.]+ [\d.]+H.*V", p.attrib["d"])
    )
    result = []
    for part in path.split("M")[1:]:
        x, y = map(float, re.match(r"([\d.]+) ([\d.]+)", part).groups())  # type: ignore[union-attr]
        points = [(x, y)]
        for step_x, step_y in re.findall(r"H([\d.]+)V([\d.]+)", part):
            points.append((float(step_x), float(step_y)))
        result.append(points)
    assert len(result) == picture.timeline.order.num_ranks
    return result
