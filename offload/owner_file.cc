#include "offload/owner_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace spillway::offload {
namespace {

constexpr std::string_view kMagic = "spillway-scratch 1 ", kRun = "run=";
constexpr size_t kOwnerBytes = 1024;  // room for an id and a host name, at most 255 bytes each, and the rest of the line

std::string line_of(const std::string& run_id) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}run={} host={} pid={} started={:%Y-%m-%dT%H:%M:%SZ}", kMagic, run_id, host.data(), ::getpid(),
                     fmt::gmtime(std::time(nullptr)));
}

// Returns the value behind `key` up to the next blank or the end, and removes both from
// `line`. Returns an empty value if the line does not begin with `key`.
std::string_view take_value(std::string_view& line, std::string_view key) {
  if (!line.starts_with(key)) return {};
  const std::string_view value = line.substr(key.size(), line.find(' ') - key.size());
  line.remove_prefix(std::min(line.size(), key.size() + value.size() + 1));
  return value;
}

bool is_like(std::string_view text, std::string_view form) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::ranges::equal(text, form, [&](char c, char wanted) { return wanted == '0' ? digit(c) : c == wanted; });
}

// Parses the older format, "host=n1 pid=17 run=0a1b started=2026-01-31T12:00:00Z", which must be the only line of the file.
std::optional<Owner> old_owner(std::string_view file) {
  if (!file.ends_with('\n') || file.find('\n') != file.size() - 1) return {};
  const std::string_view whole = file.substr(0, file.size() - 1);
  std::string_view line = whole;
  const std::string_view host = take_value(line, "host="), pid = take_value(line, "pid="), run = take_value(line, kRun);
  const std::string_view started = take_value(line, "started=");
  const bool ours = !host.empty() && !run.empty() && !pid.empty() && pid.size() < 20 && is_like(pid, std::string(pid.size(), '0')) &&
                    is_like(started, "0000-00-00T00:00:00Z") && line.empty() && whole.ends_with(started);
  return ours ? std::optional(Owner{std::string(run), std::string(whole), true}) : std::nullopt;
}

}  // namespace

std::optional<Owner> read_owner(int descriptor) {
  std::array<char, kOwnerBytes> bytes{};
  const auto n = ::pread(descriptor, bytes.data(), bytes.size(), 0);
  std::string_view line(bytes.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  line = line.substr(0, line.find('\n'));
  if (!line.starts_with(kMagic)) return old_owner({bytes.data(), static_cast<size_t>(std::max<ssize_t>(n, 0))});
  line.remove_prefix(kMagic.size());
  const size_t run_end = line.find(' ');
  if (!line.starts_with(kRun) || run_end == std::string_view::npos || run_end == kRun.size()) return {};
  return Owner{std::string(line.substr(kRun.size(), run_end - kRun.size())), std::string(line.substr(0, line.find_last_not_of(' ') + 1))};
}

void write_owner(int descriptor, const std::filesystem::path& file, const std::string& run_id) {
  std::string line = line_of(run_id);
  line.resize(kOwnerBytes - 1, ' ');
  line += '\n';
  if (::pwrite(descriptor, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size())) return;
  throw Error(ErrorCode::io, fmt::format("[run folder] write of {} failed: {} (errno {}); check the path or give --nvme another path",
                                         file.string(), std::generic_category().message(errno), errno));
}

void check_private(int descriptor, const std::filesystem::path& what) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) info.st_uid = ~::geteuid();
  const bool second_name = S_ISREG(info.st_mode) && info.st_nlink > 1;
  if (info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && !second_name) return;
  throw Error(ErrorCode::usage,
              fmt::format("[run folder] expected {} to belong to user {} and to be writable by no other user, got owner {}, mode {:04o}, "
                          "{} hard link{}: another user may have created it; remove it or give --nvme another path",
                          what.string(), ::geteuid(), info.st_uid, info.st_mode & 07777u, info.st_nlink, info.st_nlink == 1 ? "" : "s"));
}

}  // namespace spillway::offload
