#include "trainer/node/disk_limit.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <sstream>

#include "trainer/node/cgroup.h"

namespace spillway::trainer {
namespace {

void tighten(std::optional<double>& limit, double bytes_per_s) {
  if (bytes_per_s > 0) limit = std::min(limit.value_or(bytes_per_s), bytes_per_s);
}

// Lowers `limit` to the limit in a file of cgroup v1, whose lines read "8:0 209715200" (device, bytes per second).
void take_v1(std::optional<double>& limit, const std::optional<std::string>& text, const std::string& device) {
  std::istringstream lines(text.value_or(""));
  std::string name;
  for (double value = 0; lines >> name >> value;) {
    if (name == device) tighten(limit, value);
  }
}

// Lowers `limit` to the limits in a file of cgroup v2, whose lines read "8:0 rbps=209715200 wbps=max riops=max wiops=max".
void take_v2(DiskLimit& limit, const std::optional<std::string>& text, const std::string& device) {
  std::istringstream lines(text.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != device) continue;
    while (words >> word) {
      // atof() returns 0 for "max", which means that there is no limit
      if (word.starts_with("rbps=")) tighten(limit.read_bytes_per_s, std::atof(word.c_str() + 5));
      if (word.starts_with("wbps=")) tighten(limit.write_bytes_per_s, std::atof(word.c_str() + 5));
    }
  }
}

}  // namespace

DiskLimit cgroup_disk(const Host& host, const std::string& device) {
  DiskLimit limit;
  for (const std::string& folder : cgroup_folders(host, "blkio")) {
    take_v1(limit.read_bytes_per_s, host.read(folder + "/blkio.throttle.read_bps_device"), device);
    take_v1(limit.write_bytes_per_s, host.read(folder + "/blkio.throttle.write_bps_device"), device);
    take_v2(limit, host.read(folder + "/io.max"), device);
  }
  return limit;
}

// Control groups limit whole disks, so for a filesystem on a partition the partition's
// disk is returned. If `path` does not exist, its nearest existing parent is used.
std::string disk_of(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path at = std::filesystem::absolute(path, ignored);
  struct stat info {};
  while (::stat(at.c_str(), &info) != 0 && at.has_relative_path()) at = at.parent_path();
  if (info.st_dev == 0) return "";
  const std::string own = fmt::format("{}:{}", major(info.st_dev), minor(info.st_dev)), block = "/sys/dev/block/" + own;
  if (!std::filesystem::exists(block + "/partition", ignored)) return own;
  const auto whole = read_whole(block + "/../dev");
  return whole ? whole->substr(0, whole->find('\n')) : own;
}

DiskRates limited(const DiskRates& rates, const DiskLimit& limit) {
  DiskRates r = rates;
  r.read_bytes_per_s = std::min(r.read_bytes_per_s, limit.read_bytes_per_s.value_or(r.read_bytes_per_s));
  r.write_bytes_per_s = std::min(r.write_bytes_per_s, limit.write_bytes_per_s.value_or(r.write_bytes_per_s));
  r.mixed_bytes_per_s = std::min(r.mixed_bytes_per_s, 2 * std::min(r.read_bytes_per_s, r.write_bytes_per_s));
  return r;
}

}  // namespace spillway::trainer
