local health = { status = "Progressing", message = "waiting for the operator" }
local generation = obj.metadata.generation
if obj.status == nil or obj.status.observedGeneration ~= generation then
  return health
end
local failures = {
  Stalled = true, ReconcileError = true,
  InstallError = true, UpgradeError = true, UninstallError = true,
  ErrorGettingValues = true, ErrorGettingClient = true, ErrorGettingReleaseState = true,
  PatchesRefused = true,
}
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Paused" and condition.status == "True" then
    return { status = "Suspended", message = "paused by an annotation" }
  end
  if condition.type == "Ready" and condition.observedGeneration == generation then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    elseif failures[condition.reason] then
      health.status = "Degraded"
    end
  end
end
return health
