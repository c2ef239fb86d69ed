"""OpenMM: molecular dynamics whose kernels NVRTC makes as it runs, against its own reference platform. Its
kernels for pairs of atoms rely on the lanes of a warp running in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm as mm
import pytest

ATOMS = 60


def positions() -> np.ndarray:
    i = np.arange(ATOMS)
    helix = np.stack([0.5 * np.cos(i * 0.6), 0.5 * np.sin(i * 0.6), 0.1 * i], axis=1)
    return helix + np.random.default_rng(0).normal(size=(ATOMS, 3)) * 0.01


def bonds() -> mm.Force:
    force = mm.HarmonicBondForce()
    for i in range(ATOMS - 1):
        force.addBond(i, i + 1, 0.3, 2e3)
    return force


def angles() -> mm.Force:
    force = mm.HarmonicAngleForce()
    for i in range(ATOMS - 2):
        force.addAngle(i, i + 1, i + 2, 1.9, 400)
    return force


def torsions() -> mm.Force:
    force = mm.PeriodicTorsionForce()
    for i in range(ATOMS - 3):
        force.addTorsion(i, i + 1, i + 2, i + 3, 3, 0.0, 5.0)
    return force


def pairs() -> mm.Force:
    force = mm.NonbondedForce()
    for i in range(ATOMS):
        force.addParticle(0.1 * (-1) ** i, 0.3, 0.5)
    for i in range(ATOMS - 1):
        force.addException(i, i + 1, 0, 1, 0)
    return force


def pairs_within_a_distance() -> mm.Force:
    force = mm.CustomNonbondedForce("k*exp(-r*3)")
    force.addGlobalParameter("k", 2.0)
    force.setNonbondedMethod(force.CutoffNonPeriodic)
    force.setCutoffDistance(1.0)
    for _ in range(ATOMS):
        force.addParticle([])
    return force


def simulated(force: mm.Force, platform: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy, forces, and where the atoms are twenty steps later."""
    system = mm.System()
    for _ in range(ATOMS):
        system.addParticle(12.0)
    system.addForce(force)
    context = mm.Context(system, mm.VerletIntegrator(0.0005), mm.Platform.getPlatformByName(platform))
    context.setPositions(positions())
    state: Any = context.getState(getForces=True, getEnergy=True)
    context.getIntegrator().step(20)
    after: Any = context.getState(getPositions=True)
    forces, places = state.getForces(asNumpy=True), after.getPositions(asNumpy=True)
    return state.getPotentialEnergy()._value, np.array(forces._value), np.array(places._value)


@pytest.mark.parametrize("make", [bonds, angles, torsions, pairs, pairs_within_a_distance])
def test_a_force(make: Any) -> None:
    energy, forces, places = simulated(make(), "CUDA")
    expected_energy, expected_forces, expected_places = simulated(make(), "Reference")
    assert energy == pytest.approx(expected_energy, rel=1e-4)
    assert np.allclose(forces, expected_forces, rtol=1e-3, atol=1e-3 * np.abs(expected_forces).max())
    assert np.allclose(places, expected_places, atol=1e-4)
