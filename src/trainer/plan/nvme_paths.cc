#include "trainer/plan/nvme_paths.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "offload/scratch_path.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<ScratchPath> paths_of(const ResourceConfig& config, const Host& host) {
  if (!config.nvme.empty()) return config.nvme;
  if (const auto slurm = host.env("SLURM_TMPDIR")) return {{*slurm, {}}};
  return {};
}

[[noreturn]] void unusable(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::usage, "[nvme] " + path.string() + " cannot be used: " + why +
                                    "; give --nvme a folder that this user may write to, or PATH:SIZE to plan for another machine");
}

// Returns what inspect_scratch() returns, but creates no test file. Asks the
// system about the folder `given` or, if it does not exist, about its parent.
offload::ScratchInfo look_without_writing(const std::string& given) {
  offload::ScratchInfo info;
  info.path = fs::absolute(given).lexically_normal();
  std::error_code none;
  info.exists = fs::exists(info.path, none);
  const fs::path folder = info.exists ? info.path : (info.path.has_filename() ? info.path : info.path.parent_path()).parent_path();
  if (!fs::is_directory(folder, none)) unusable(info.path, folder.string() + " is not a folder");
  if (::access(folder.c_str(), W_OK) != 0) unusable(info.path, std::strerror(errno));
  struct statfs stat {};
  if (::statfs(folder.c_str(), &stat) != 0) unusable(info.path, std::strerror(errno));
  info.filesystem = offload::classify_filesystem(static_cast<u32>(stat.f_type));
  const auto block_bytes = static_cast<i64>(stat.f_frsize > 0 ? stat.f_frsize : stat.f_bsize);
  info.free_bytes = static_cast<i64>(stat.f_bavail) * block_bytes;
  info.total_bytes = static_cast<i64>(stat.f_blocks) * block_bytes;
  return info;
}

// Returns the bytes that may be preallocated on a scratch path: the free space less 5 % of the drive, plus the
// files of a dead run, which are reused. The result never exceeds the limit that the user gave with the path.
i64 room_on(const offload::ScratchInfo& info, const ScratchPath& path, const ScratchId& id) {
  const i64 bytes = info.free_bytes - info.total_bytes / 20 + id.bytes_left_behind(path.path);
  return std::max<i64>(0, path.bytes ? std::min(bytes, *path.bytes) : bytes);
}

}  // namespace

NvmePaths find_nvme_paths(const ResourceConfig& config, const ScratchId& id, int local_ranks, const Host& host) {
  NvmePaths nvme{.paths = paths_of(config, host)};
  for (ScratchPath& path : nvme.paths) {
    if (config.for_any_node && path.look == ScratchPath::Look::thorough) path.look = ScratchPath::Look::without_writing;
    if (config.for_any_node && path.bytes) {
      nvme.room_bytes.push_back(*path.bytes / local_ranks);
      continue;
    }
    const offload::ScratchInfo info = config.for_any_node ? look_without_writing(path.path) : offload::inspect_scratch(path.path);
    offload::admit_scratch(info, config.allow_network_nvme);
    nvme.room_bytes.push_back(room_on(info, path, id) / local_ranks);
    nvme.is_memory |= info.filesystem.memory;
  }
  nvme.shares = known_shares(nvme.paths, id.mine(), load_calibration(host));
  return nvme;
}

i64 NvmePaths::bytes_beside(const std::string& folder, i64 all_bytes, const ScratchId& id) const {
  const auto whole = static_cast<double>(all_bytes);
  const double sum = std::accumulate(shares.weights.begin(), shares.weights.end(), 0.0);
  i64 bytes = 0;
  for (size_t p = 0; p < paths.size() && whole > 0; ++p) {
    const std::string& path = paths[p].path;
    if (!on_one_filesystem({{path, {}}, {folder, {}}})) continue;
    const double share = static_cast<double>(shares.weights[p]) / sum;
    bytes += std::max<i64>(0, static_cast<i64>(whole * share) - id.bytes_left_behind(path));
  }
  return bytes;
}

bool NvmePaths::take_measured(const std::vector<DiskRates>& disks) {
  const bool all_measured = !disks.empty() && std::ranges::none_of(disks, [](const DiskRates& disk) { return disk.path.empty(); });
  if (!shares.to_measure || !all_measured) return false;
  shares = shares_by(disks, "measured");
  return true;
}

}  // namespace spillway::trainer
