"""All forms that programs of structured.py are made of besides their own statements, by kind and by name."""

from __future__ import annotations

from . import form_images, form_lanes, form_matrices, form_memory, form_scalars
from .form import Form

KINDS = ("scalars", "lanes", "memory", "matrices", "images")
_MODULES = (form_scalars, form_lanes, form_memory, form_matrices, form_images)
BY_KIND: dict[str, list[Form]] = {kind: module.forms() for kind, module in zip(KINDS, _MODULES, strict=True)}
FORMS: dict[str, Form] = {form.name: form for forms in BY_KIND.values() for form in forms}
