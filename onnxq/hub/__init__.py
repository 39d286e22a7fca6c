"""Folders as model hubs lay them out, a model in each precision that clients want."""

from onnxq.hub.folder import HubFile, HubFolder, hub_folder

__all__ = ["HubFile", "HubFolder", "hub_folder"]
