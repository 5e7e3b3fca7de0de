terraform {
  required_version = ">= 1.9"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.55"
    }
  }
}

# The subscription comes from ARM_SUBSCRIPTION_ID, and who asks from `az login`.
provider "azurerm" {
  features {}
}
