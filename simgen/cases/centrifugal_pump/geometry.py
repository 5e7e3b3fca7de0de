"""Build the pump's plan view as curves: blades, spiral casing with its tongue, and diffuser.

All lengths are in metres, seen from the suction side (looking down -z); the impeller turns
anticlockwise. The plan is extruded over DEPTH, and the eye further up into the suction pipe. numpy
only: the mesher and the drawing share these curves.

Notable choices (docs/families/centrifugal-pump.md has a drawing and the reasons):
- A blade's angle to the tangential direction changes linearly in radius from BLADE_INLET_ANGLE at
  its inlet to the design's pitch at its tip. One angle over the whole blade would wrap a 5 degree
  spiral more than once around the shaft.
- Blades are solid, with square ends, so that pressure and suction side are distinct points of the
  boundary cloud.
- The spiral starts at a rounded tongue and grows linearly with the angle, so that a constant whirl
  fills it evenly.
"""

import math
from dataclasses import dataclass

import numpy as np

NUM_BLADES = 6
BLADE_THICKNESS = 0.005
BLADE_INLET_ANGLE = 20.0  # degrees from the tangential direction
DEPTH = 0.06  # of impeller passages, volute and diffuser alike
SUCTION_LENGTH = 0.12

# In eye or impeller radii.
BLADE_INLET = 1.1
ROTOR = 1.075
TONGUE, TONGUE_THICKNESS, TONGUE_ANGLE = 1.17, 0.05, 20.0
VOLUTE_END = 1.65
DIFFUSER_LENGTH = 1.8
DIFFUSER_ANGLE = 7.0  # degrees between its two walls

SPIRAL_POINTS, BLADE_POINTS = 49, 25


@dataclass(frozen=True)
class PumpPlan:
    """The curves of one design, each (n, 2) points.

    `blades` are closed outlines: pressure side outward, tip, suction side inward, leading edge; the
    first half of the points is the pressure side. `spiral` runs from the tongue's inner corner
    round to the throat; then follow the `outer_wall` and the `inner_wall` of the diffuser, each (2,
    2) from throat to outlet, and `nose`, the middle of the tongue's rounded end.
    """

    eye_radius: float
    impeller_radius: float
    rotor_radius: float
    blades: tuple[np.ndarray, ...]
    spiral: np.ndarray
    outer_wall: np.ndarray
    inner_wall: np.ndarray
    nose: np.ndarray


def pump_plan(eye_radius: float, impeller_radius: float, pitch_angle: float) -> PumpPlan:
    """Build the plan from eye and impeller radius (m) and the pitch at the tip (degrees)."""
    first = blade_outline(eye_radius, impeller_radius, pitch_angle)
    start = math.radians(TONGUE_ANGLE)
    theta = np.linspace(start, 2 * math.pi, SPIRAL_POINTS)
    growth = (VOLUTE_END - TONGUE) / (2 * math.pi - start)
    radius = impeller_radius * (TONGUE + growth * (theta - start))
    spiral = radius[:, None] * np.stack([np.cos(theta), np.sin(theta)], axis=1)
    radial, tangential = _polar(start)
    thickness = TONGUE_THICKNESS * impeller_radius
    shoulder = spiral[0] + thickness * radial
    nose = spiral[0] + thickness / 2 * (radial - tangential)
    # The outer wall leaves along the spiral's own tangent; the inner wall approaches it by the
    # diffuser's angle.
    out_along = growth * _polar(0.0)[0] + VOLUTE_END * _polar(0.0)[1]
    out_along = out_along / np.linalg.norm(out_along)
    in_along = _turned(out_along[None], math.radians(DIFFUSER_ANGLE))[0]
    end_y = shoulder[1] + DIFFUSER_LENGTH * impeller_radius
    outer_wall = np.stack([spiral[-1], _at_height(spiral[-1], out_along, end_y)])
    inner_wall = np.stack([shoulder, _at_height(shoulder, in_along, end_y)])
    return PumpPlan(
        eye_radius,
        impeller_radius,
        ROTOR * impeller_radius,
        tuple(_turned(first, 2 * math.pi * blade / NUM_BLADES) for blade in range(NUM_BLADES)),
        spiral,
        outer_wall,
        inner_wall,
        nose,
    )


def camber_line(
    eye_radius: float, impeller_radius: float, pitch_angle: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return radius (m), polar angle (rad) and blade angle (rad) along the middle of a blade.

    d theta = -d r / (r tan beta): the polar angle falls, so the blade is swept backward. The ends
    are drawn in so that the blade's corners lie on its inlet and tip radii.
    """
    half = BLADE_THICKNESS / 2
    inner = BLADE_INLET * eye_radius + half * math.cos(math.radians(BLADE_INLET_ANGLE))
    outer = impeller_radius - half * math.cos(math.radians(pitch_angle))
    radius = np.linspace(inner, outer, 16 * (BLADE_POINTS - 1) + 1)
    share = (radius - inner) / (outer - inner)
    angle = np.radians(BLADE_INLET_ANGLE + (pitch_angle - BLADE_INLET_ANGLE) * share)
    slope = -1 / (radius * np.tan(angle))
    steps = 0.5 * (slope[1:] + slope[:-1]) * np.diff(radius)
    theta = np.concatenate([[0.0], np.cumsum(steps)])
    return radius[::16], theta[::16], angle[::16]


def blade_outline(eye_radius: float, impeller_radius: float, pitch_angle: float) -> np.ndarray:
    """Return the closed outline (2 * BLADE_POINTS, 2) of the blade whose inlet is at angle 0."""
    radius, theta, angle = camber_line(eye_radius, impeller_radius, pitch_angle)
    radial = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    tangential = np.stack([-np.sin(theta), np.cos(theta)], axis=1)
    camber = radius[:, None] * radial
    # The blade runs outward and backward; the pressure side faces the rotation.
    normal = np.cos(angle)[:, None] * radial + np.sin(angle)[:, None] * tangential
    half = BLADE_THICKNESS / 2
    return np.concatenate([camber + half * normal, (camber - half * normal)[::-1]])


def _polar(theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the radial and tangential unit vectors at a polar angle."""
    return np.array([math.cos(theta), math.sin(theta)]), np.array(
        [-math.sin(theta), math.cos(theta)]
    )


def _at_height(start: np.ndarray, along: np.ndarray, y: float) -> np.ndarray:
    return np.asarray(start + along * (y - start[1]) / along[1])


def _turned(points: np.ndarray, angle: float) -> np.ndarray:
    """Turn points (n, 2) about the shaft, anticlockwise."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return points @ np.array([[cosine, sine], [-sine, cosine]])
