#include "app/node/scratch_id.h"

namespace spillway::app {
namespace {

std::string folder_of(const std::string& id) { return "spillway-" + id; }

}  // namespace

bool ScratchId::has(const std::string& folder) const {
  for (int r = 0; r < ranks; ++r) {
    if (folder == folder_of(of(r))) return true;
  }
  return false;
}

std::vector<offload::Orphan> ScratchId::left_behind(const std::filesystem::path& path) const {
  std::vector<offload::Orphan> orphans = offload::list_orphans(path);
  const std::string alone = folder_of(run_id);
  std::erase_if(orphans, [&](const offload::Orphan& o) { return o.name != alone && !o.name.starts_with(alone + "-rank"); });
  return orphans;
}

i64 ScratchId::bytes_left_behind(const std::filesystem::path& path) const {
  i64 bytes = 0;
  for (const offload::Orphan& o : left_behind(path)) bytes += o.bytes;
  return bytes;
}

}  // namespace spillway::app
