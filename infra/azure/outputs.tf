output "registry" {
  description = "Where images are pushed: infra/images/build REGISTRY/courant"
  value       = azurerm_container_registry.this.login_server
}

output "credentials" {
  description = "The command that sets kubectl to the cluster"
  value       = "az aks get-credentials --resource-group ${var.name} --name ${var.name}"
}
