"""A new project: `treering init` writes its files, `treering version` records the code that its stages depend on."""
