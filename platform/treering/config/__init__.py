"""What we mean to run: the schema of an experiment, its resolution, and the digests that name it.

Kept empty of imports: `treering.config.canonical` serves the run log's writer, which stays close to the standard
library, while `treering.config.schema` needs pydantic.
"""
