"""Search in the ledger: `query` parses, `fields` names what can be asked, `conditions` makes SQL, `find` answers."""
