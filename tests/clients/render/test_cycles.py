"""Blender's Cycles: pictures that it traces on the device, against those that it traces on the CPU. Its
kernels are one text of 12 MB (PTX 7.4), of which each scene needs others; the first takes minutes to compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bpy
import numpy as np
import pytest

WIDTH, HEIGHT, SAMPLES = 40, 30, 4


def node(shader: Any, kind: str, target: str) -> Any:
    """A new node whose first result is the shader's `target`."""
    tree = shader.id_data
    made = tree.nodes.new(kind)
    tree.links.new(made.outputs[0], shader.inputs[target])
    return made


def plain(diffuse: Any, shiny: Any) -> None:
    diffuse.inputs["Base Color"].default_value = (0.8, 0.2, 0.1, 1)


def textures(diffuse: Any, shiny: Any) -> None:
    """Textures of floats and of bytes, with two kinds of interpolation, and one that is computed."""
    floats = bpy.data.images.new("floats", 16, 16, float_buffer=True)
    floats.pixels = [(i * 7 % 13) / 13 for i in range(16 * 16 * 4)]
    node(shiny, "ShaderNodeTexImage", "Base Color").image = floats
    octets = bpy.data.images.new("bytes", 32, 8)
    octets.pixels = [(i * 5 % 11) / 11 for i in range(32 * 8 * 4)]
    picture = node(diffuse, "ShaderNodeTexImage", "Base Color")
    picture.image, picture.interpolation = octets, "Cubic"
    node(diffuse, "ShaderNodeTexNoise", "Roughness")


def glass(diffuse: Any, shiny: Any) -> None:
    """Light that goes through things, and into them."""
    shiny.inputs["Metallic"].default_value = 0
    shiny.inputs["Transmission Weight"].default_value = 1
    diffuse.inputs["Subsurface Weight"].default_value = 0.5


SCENES: dict[str, Callable[[Any, Any], None]] = {"plain": plain, "textures": textures, "glass": glass}


def material(name: str) -> Any:
    """The shader of a new material of the object that was made last."""
    made = bpy.data.materials.new(name)
    made.use_nodes = True
    bpy.context.object.data.materials.append(made)
    return made.node_tree.nodes["Principled BSDF"]


def placed(name: str, data: Any, location: tuple[float, float, float], tilt: float) -> Any:
    made = bpy.data.objects.new(name, data)
    made.location, made.rotation_euler = location, (math.radians(tilt), 0, 0)
    bpy.context.scene.collection.objects.link(made)
    return made


def build(surfaces: Callable[[Any, Any], None]) -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    scene.world = bpy.data.worlds.new("sky")
    scene.world.use_nodes = True
    scene.world.node_tree.nodes["Background"].inputs[0].default_value = (0.3, 0.4, 0.6, 1)
    scene.camera = placed("camera", bpy.data.cameras.new("camera"), (0, -6, 2.5), 70)
    lamp = bpy.data.lights.new("lamp", "AREA")
    lamp.energy, lamp.size = 400, 2
    placed("lamp", lamp, (0, -2, 4), 25)
    bpy.ops.mesh.primitive_plane_add(size=10)
    bpy.ops.mesh.primitive_monkey_add(location=(0, 0, 1.2))
    diffuse = material("diffuse")
    bpy.ops.mesh.primitive_uv_sphere_add(segments=16, ring_count=8, location=(2, 0, 1))
    shiny = material("shiny")
    shiny.inputs["Metallic"].default_value, shiny.inputs["Roughness"].default_value = 1, 0.1
    surfaces(diffuse, shiny)


def traced(device: str, path: Path) -> np.ndarray:
    scene = bpy.context.scene
    preferences = bpy.context.preferences.addons["cycles"].preferences
    preferences.compute_device_type = "CUDA" if device == "GPU" else "NONE"
    preferences.get_devices()
    for each in preferences.devices:
        each.use = each.type == "CUDA"
    scene.render.engine, scene.cycles.device = "CYCLES", device
    scene.cycles.samples, scene.cycles.seed = SAMPLES, 1
    scene.cycles.use_denoising = scene.cycles.use_adaptive_sampling = False
    scene.render.resolution_x, scene.render.resolution_y = WIDTH, HEIGHT
    scene.render.image_settings.file_format = "OPEN_EXR"
    scene.render.image_settings.color_depth = "32"
    scene.render.filepath = str(path)
    bpy.ops.render.render(write_still=True)
    return np.array(bpy.data.images.load(str(path)).pixels[:]).reshape(HEIGHT, WIDTH, 4)


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str, tmp_path: Path) -> None:
    build(SCENES[name])
    ours, reference = (traced(device, tmp_path / f"{device}.exr") for device in ("GPU", "CPU"))
    assert np.allclose(ours, reference, rtol=0.02, atol=0.01)
    assert reference.std() > 0.05
