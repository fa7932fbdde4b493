"""Documentation of the action `drafthouse.core.program_files`, which works on the controller."""

DOCUMENTATION = r"""
module: program_files
short_description: Render the files of a program that stays on the box
description:
  - Returns them as C(entries) for M(drafthouse.core.laid_out).
options:
  folder: {description: The program's folder on the box., type: path, required: true}
  template: {description: "The template of serve.sh, below templates/.", type: str, required: true}
  data: {description: What the template is filled with., type: dict, required: true}
  order: {description: Settings that the program reads again and again., type: dict}
author: Drafthouse
"""
