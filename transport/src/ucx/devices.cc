// SPDX-License-Identifier: Apache-2.0
//
// The devices that UCX finds on this machine. They are listed through UCX's lower layer, UCT, which
// also reports the kind of each device. UCT has components, a component has memory domains, and a
// domain has resources.
#include "ucx/api.h"
#include "ucx/status.h"
#include "xylem/transport/ucx.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>

namespace xylem::transport {
namespace ucx {
namespace {

UcxDevice::Kind kind_of(uct_device_type_t type) {
  switch (type) {
    case UCT_DEVICE_TYPE_SHM: return UcxDevice::Kind::shared_memory;
    case UCT_DEVICE_TYPE_ACC: return UcxDevice::Kind::accelerator;
    case UCT_DEVICE_TYPE_SELF: return UcxDevice::Kind::self;
    case UCT_DEVICE_TYPE_NET:
    case UCT_DEVICE_TYPE_LAST: break;
  }
  return UcxDevice::Kind::network;
}

// A memory domain that cannot be opened (no driver, no permission) is unusable here, and adds no
// devices.
void append_devices(uct_component_h component, const char* md_name, std::vector<UcxDevice>& out) {
  uct_md_config_t* raw_config = nullptr;
  if (api().uct_md_config_read(component, nullptr, nullptr, &raw_config) != UCS_OK) return;
  const std::unique_ptr<uct_md_config_t, Release<&Api::uct_config_release>> config(raw_config);

  uct_md_h raw_md = nullptr;
  if (api().uct_md_open(component, md_name, config.get(), &raw_md) != UCS_OK) return;
  const std::unique_ptr<uct_md, Release<&Api::uct_md_close>> md(raw_md);

  uct_tl_resource_desc_t* raw_list = nullptr;
  unsigned count = 0;
  if (api().uct_md_query_tl_resources(md.get(), &raw_list, &count) != UCS_OK) return;
  const std::unique_ptr<uct_tl_resource_desc_t, Release<&Api::uct_release_tl_resource_list>> list(
      raw_list);
  for (const uct_tl_resource_desc_t& found : std::span(raw_list, count)) {
    out.push_back({found.tl_name, found.dev_name, kind_of(found.dev_type)});
  }
}

std::vector<std::string> md_names(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (api().uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> mds(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = mds.data();
  if (mds.empty() || api().uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<std::string> names;
  names.reserve(mds.size());
  for (const auto& md : mds) names.emplace_back(md.md_name);
  return names;
}

}  // namespace
}  // namespace ucx

Result<std::vector<UcxDevice>> ucx_devices() {
  if (Status opened = ucx::open_api(); !opened) return opened;
  uct_component_h* raw = nullptr;
  unsigned count = 0;
  const ucs_status_t status = ucx::api().uct_query_components(&raw, &count);
  if (status != UCS_OK) return ucx::refusal(status, "list its components");
  const std::unique_ptr<uct_component_h, ucx::Release<&ucx::Api::uct_release_component_list>>
      components(raw);

  std::vector<UcxDevice> devices;
  for (uct_component_h component : std::span(raw, count)) {
    for (const std::string& md : ucx::md_names(component)) {
      ucx::append_devices(component, md.c_str(), devices);
    }
  }
  return devices;
}

}  // namespace xylem::transport
