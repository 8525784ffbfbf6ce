"""The asyncio edge: LiveKit rooms, carriers, command line."""
