#include "trainer/node/scratch_id.h"

#include <fmt/format.h>

#include "base/random.h"

namespace spillway::trainer {
namespace {

std::string folder_of(const std::string& id) { return "spillway-" + id; }

}  // namespace

std::string scratch_run_id(const std::filesystem::path& out) {
  const std::string place = std::filesystem::weakly_canonical(std::filesystem::absolute(out)).string();
  return fmt::format("{:08x}", static_cast<u32>(RandomKey{}.derive(place).value));
}

bool ScratchId::has(const std::string& folder) const {
  for (int r = 0; r < ranks; ++r) {
    if (folder == folder_of(of(r))) return true;
  }
  return false;
}

std::vector<offload::Orphan> ScratchId::all_left_behind(const std::filesystem::path& path) const {
  std::vector<offload::Orphan> orphans = offload::list_orphans(path);
  std::erase_if(orphans, [&](const offload::Orphan& o) { return o.run != run_id && !o.run.starts_with(run_id + "-rank"); });
  return orphans;
}

std::vector<offload::Orphan> ScratchId::of_others(const std::filesystem::path& path) const {
  std::vector<offload::Orphan> orphans = all_left_behind(path);
  std::erase_if(orphans, [&](const offload::Orphan& o) { return has(o.name); });
  return orphans;
}

i64 ScratchId::bytes_left_behind(const std::filesystem::path& path) const {
  i64 bytes = 0;
  for (const offload::Orphan& o : all_left_behind(path)) bytes += has(o.name) ? o.bytes : 0;
  return bytes;
}

}  // namespace spillway::trainer
