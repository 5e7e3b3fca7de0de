# AKS with the pools that infra/kubernetes/overlays/azure asks for, a registry for the images, and
# nothing that costs while nobody works but the pool `services`.

resource "azurerm_resource_group" "this" {
  name     = var.name
  location = var.location
}

resource "azurerm_virtual_network" "this" {
  name                = var.name
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
  address_space       = ["10.60.0.0/16"]
}

resource "azurerm_subnet" "nodes" {
  name                 = "nodes"
  resource_group_name  = azurerm_resource_group.this.name
  virtual_network_name = azurerm_virtual_network.this.name
  address_prefixes     = ["10.60.0.0/20"]
}

resource "azurerm_container_registry" "this" {
  name                = var.registry
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
  sku                 = "Standard"
  admin_enabled       = false
}

resource "azurerm_user_assigned_identity" "cluster" {
  name                = "${var.name}-cluster"
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
}

# Nodes join the subnet, and the load balancer of the door gets its address there.
resource "azurerm_role_assignment" "network" {
  scope                = azurerm_virtual_network.this.id
  role_definition_name = "Network Contributor"
  principal_id         = azurerm_user_assigned_identity.cluster.principal_id
}

resource "azurerm_kubernetes_cluster" "this" {
  name                = var.name
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
  dns_prefix          = var.name

  # Patches by themselves, at night; new versions when you say so.
  automatic_upgrade_channel = "patch"
  node_os_upgrade_channel   = "NodeImage"

  # Only members of the groups get in, with their own accounts.
  local_account_disabled            = true
  role_based_access_control_enabled = true

  azure_active_directory_role_based_access_control {
    azure_rbac_enabled     = false
    admin_group_object_ids = var.administrators
  }

  api_server_access_profile {
    authorized_ip_ranges = var.api_access
  }

  identity {
    type         = "UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.cluster.id]
  }

  # Cilium enforces the NetworkPolicies of infra/kubernetes.
  network_profile {
    network_plugin      = "azure"
    network_plugin_mode = "overlay"
    network_policy      = "cilium"
    network_data_plane  = "cilium"
  }

  # Prefect, PostgreSQL, S3, Ray's head, the door, and what AKS itself runs.
  default_node_pool {
    name                        = "services"
    vm_size                     = "Standard_D8as_v5"
    auto_scaling_enabled        = true
    min_count                   = 2
    max_count                   = 4
    max_pods                    = 60
    os_disk_size_gb             = 128
    vnet_subnet_id              = azurerm_subnet.nodes.id
    temporary_name_for_rotation = "rotation"
    node_labels                 = { "courant/pool" = "services" }
  }

  maintenance_window_auto_upgrade {
    frequency   = "Weekly"
    interval    = 1
    day_of_week = "Sunday"
    start_time  = "02:00"
    utc_offset  = "+00:00"
    duration    = 4
  }

  maintenance_window_node_os {
    frequency   = "Weekly"
    interval    = 1
    day_of_week = "Sunday"
    start_time  = "02:00"
    utc_offset  = "+00:00"
    duration    = 4
  }

  depends_on = [azurerm_role_assignment.network]

  lifecycle {
    # The autoscaler changes the number.
    ignore_changes = [default_node_pool[0].node_count]
  }
}

resource "azurerm_role_assignment" "images" {
  scope                = azurerm_container_registry.this.id
  role_definition_name = "AcrPull"
  principal_id         = azurerm_kubernetes_cluster.this.kubelet_identity[0].object_id
}

# AKS gives spot nodes the taint kubernetes.azure.com/scalesetpriority=spot:NoSchedule, which the
# pods of Ray's group `solving` tolerate.
resource "azurerm_kubernetes_cluster_node_pool" "solving" {
  name                  = "solving"
  kubernetes_cluster_id = azurerm_kubernetes_cluster.this.id
  vm_size               = var.solving_size
  vnet_subnet_id        = azurerm_subnet.nodes.id
  auto_scaling_enabled  = true
  min_count             = 0
  max_count             = var.solving_nodes
  priority              = var.solving_spot ? "Spot" : "Regular"
  eviction_policy       = var.solving_spot ? "Delete" : null
  spot_max_price        = var.solving_spot ? -1 : null
  os_disk_size_gb       = 256
  node_labels           = { "courant/pool" = "solving" }
  node_taints = var.solving_spot ? [
    "kubernetes.azure.com/scalesetpriority=spot:NoSchedule",
  ] : []

  lifecycle {
    # AKS adds a label of its own to spot nodes.
    ignore_changes = [node_labels["kubernetes.azure.com/scalesetpriority"]]
  }
}

resource "azurerm_kubernetes_cluster_node_pool" "training" {
  name                  = "training"
  kubernetes_cluster_id = azurerm_kubernetes_cluster.this.id
  vm_size               = var.training_size
  vnet_subnet_id        = azurerm_subnet.nodes.id
  auto_scaling_enabled  = true
  min_count             = 0
  max_count             = var.training_nodes
  os_disk_size_gb       = 256
  # NVIDIA's device plugin looks for the second.
  node_labels = { "courant/pool" = "training", "nvidia.com/gpu.present" = "true" }
  # Only pods that ask for a GPU are put there.
  node_taints = ["nvidia.com/gpu=present:NoSchedule"]
}

resource "azurerm_consumption_budget_resource_group" "this" {
  name = var.name
  # Nodes, disks and the load balancer are in the cluster's own group.
  resource_group_id = azurerm_kubernetes_cluster.this.node_resource_group_id
  amount            = var.budget
  time_grain        = "Monthly"

  time_period {
    start_date = var.budget_start
  }

  notification {
    threshold      = 80
    operator       = "GreaterThan"
    contact_emails = var.budget_mail
  }
}
