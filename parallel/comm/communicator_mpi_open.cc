#include "parallel/comm/communicator_mpi_open.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "device/shared_library.h"

namespace spillway::parallel {
namespace {

constexpr const char* kPlugin = "libspillway_mpi.so";

// Returns where the plug-in may be: in the program's folder, where an installation puts the plug-in, and in the loader's search path.
std::vector<std::string> places() {
  std::error_code unknown;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  if (unknown) return {kPlugin};
  return {folder / kPlugin, folder.parent_path() / kPlugin, folder.parent_path() / "lib" / "spillway" / kPlugin, kPlugin};
}

// Opens the plug-in. Its symbols are made global, because Open MPI's own plug-ins must find them.
SharedLibrary open_plugin() {
  SharedLibrary library(places(), SharedLibrary::Symbols::shared);
  if (library) return library;
  // The message tells what is missing: the plug-in itself, or the MPI libraries that it needs.
  std::error_code ignored;
  const bool built = std::ranges::any_of(places(), [&](const std::filesystem::path& p) { return std::filesystem::exists(p, ignored); });
  const char* cure =
      built ? "the file exists, but the Open MPI library that it needs was not found: run module load openmpi, or install openmpi-bin"
            : "this build has no MPI support: install Open MPI's headers (Debian: libopenmpi-dev; on a cluster: module load openmpi), then "
              "configure and build again: scripts/setup.sh && cmake --preset release && cmake --build --preset release";
  throw Error(ErrorCode::usage,
              fmt::format("[communicator mpi] expected {}, got none that can be loaded:\n  {}\n{}; or choose --communicator local", kPlugin,
                          fmt::join(library.problems(), "\n  "), cure));
}

}  // namespace

std::unique_ptr<Communicator> open_mpi_communicator(const MpiOptions& options) {
  if (!(options.timeout_s > 0))
    throw Error(ErrorCode::usage, fmt::format("[communicator] expected a timeout above 0, got {} s", options.timeout_s));
  using Open = Communicator* (*)(const MpiOptions&);
  // The plug-in is never closed, because it holds the code of the endpoints that it made.
  static const SharedLibrary& plugin = *new SharedLibrary(open_plugin());
  const auto open = reinterpret_cast<Open>(plugin.find("spillway_open_mpi"));
  require(open != nullptr,
          "[communicator mpi] expected the libspillway_mpi.so of this version of the program, got a file without the function "
          "spillway_open_mpi");
  return std::unique_ptr<Communicator>(open(options));
}

}  // namespace spillway::parallel
