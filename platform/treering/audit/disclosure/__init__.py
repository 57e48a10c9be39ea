"""What an audit found, in the forms that others ask for: CycloneDX, Croissant, the summary of training content.

`facts` gathers once, from the audit's report and the corpora's manifests; the writers only arrange. What the records do
not say is left open by name, never guessed.
"""
