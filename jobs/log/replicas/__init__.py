"""A log made whole before it is read, from other copies of it.

``restored_log`` fills missing segments and takes healed ones in place of damaged ones; ``healing`` plans which bytes
come from which copy, on ``byte_ranges``.
"""
