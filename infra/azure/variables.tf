variable "name" {
  description = "Name of the resource group and the cluster, and start of all other names"
  type        = string
  default     = "courant"
  validation {
    condition     = can(regex("^[a-z][a-z0-9]{2,19}$", var.name))
    error_message = "The name has 3 to 20 small letters and digits, a letter first."
  }
}

variable "registry" {
  description = "Name of the container registry; it is part of an address, so nobody else may have it"
  type        = string
  validation {
    condition     = can(regex("^[a-zA-Z0-9]{5,50}$", var.registry))
    error_message = "The registry's name has 5 to 50 letters and digits."
  }
}

variable "location" {
  description = "A region that offers the size of the pool `training`"
  type        = string
  default     = "westeurope"
}

variable "administrators" {
  description = "Object ids of Entra groups whose members administer the cluster"
  type        = list(string)
  validation {
    condition     = length(var.administrators) > 0
    error_message = "Without a group nobody could use the cluster: local accounts are off."
  }
}

variable "api_access" {
  description = "Address ranges from which the API of Kubernetes is reached"
  type        = list(string)
  validation {
    condition     = length(var.api_access) > 0 && !contains(var.api_access, "0.0.0.0/0")
    error_message = "Name the ranges of your own networks."
  }
}

variable "solving_size" {
  description = "Machine of a node that solves cases: 16 vCPU"
  type        = string
  default     = "Standard_D16as_v5"
}

variable "solving_nodes" {
  description = "The most of them; as maxReplicas of the group `solving` of infra/kubernetes"
  type        = number
  default     = 16
}

variable "solving_spot" {
  description = "Take spare machines, at a part of the price; what is taken away is solved again"
  type        = bool
  default     = true
}

variable "training_size" {
  description = "Machine of a node that trains: the paper's, one A100 of 80 GB"
  type        = string
  default     = "Standard_NC24ads_A100_v4"
}

variable "training_nodes" {
  description = "The most of them; as maxReplicas of the group `training` of infra/kubernetes"
  type        = number
  default     = 2
}

variable "budget" {
  description = "Of a month, in the currency of the subscription; at 80 % a mail is sent"
  type        = number
  default     = 1500
}

variable "budget_mail" {
  description = "Who gets that mail"
  type        = list(string)
  validation {
    condition     = length(var.budget_mail) > 0
    error_message = "Give at least one address."
  }
}

variable "budget_start" {
  description = "First day of the budget's first month"
  type        = string
  validation {
    condition     = can(regex("^\\d{4}-\\d{2}-01T00:00:00Z$", var.budget_start))
    error_message = "Give the first of a month, such as 2026-12-01T00:00:00Z."
  }
}
