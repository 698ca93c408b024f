"""Set-up, by the standard library alone: what a start needs besides this program, before there is anything else.

=================  ===================================================================================================
``environment``    the set-up, at the first start: packages, jars, compiled kernels; called as a file
``java``           which Java there is
``setup_steps``    its steps, several at once
``delta_jars``     Delta's jars; ``s3_jars``: what Spark itself reads S3 with, when the set-up is asked for it
``bundle``         all that it fetches in one file, for machines without a network
``packing``        Python packages for executors
=================  ===================================================================================================
"""
