"""Write reports as folders of plain files: a trained run's, made of panels, and a sweep's."""
