"""The whole workflow in minutes: distill, export, bench, report, on the embedded corpus and the offline teacher."""
