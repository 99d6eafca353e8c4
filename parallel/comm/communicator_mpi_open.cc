#include "parallel/comm/communicator_mpi_open.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "device/shared_library.h"

namespace spillway::parallel {
namespace {

constexpr const char* kPlugin = "libspillway_mpi.so";

// Beside the program, where an installation has it, and where the loader looks.
std::vector<std::string> places() {
  std::error_code unknown;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  if (unknown) return {kPlugin};
  return {folder / kPlugin, folder.parent_path() / kPlugin, folder.parent_path() / "lib" / "spillway" / kPlugin, kPlugin};
}

// Its symbols are shared, because Open MPI's own plug-ins look for them.
SharedLibrary open_plugin() {
  SharedLibrary library(places(), SharedLibrary::Symbols::shared);
  if (library) return library;
  throw Error(
      ErrorCode::usage,
      fmt::format("[communicator mpi] expected {}, which is built where Open MPI's headers are, got none:\n  {}\n"
                  "install Open MPI (Debian: openmpi-bin and libopenmpi-dev; on a cluster: module load openmpi) and build again, or "
                  "choose --communicator local",
                  kPlugin, fmt::join(library.problems(), "\n  ")));
}

}  // namespace

std::unique_ptr<Communicator> open_mpi_communicator(const MpiOptions& options) {
  if (!(options.timeout_s > 0))
    throw Error(ErrorCode::usage, fmt::format("[communicator] expected a time-out, got {} s", options.timeout_s));
  using Open = Communicator* (*)(const MpiOptions&);
  static const SharedLibrary& plugin = *new SharedLibrary(open_plugin());  // never closed: code of the ends it makes lies in it
  const auto open = reinterpret_cast<Open>(plugin.find("spillway_open_mpi"));
  require(open != nullptr, "[communicator mpi] expected libspillway_mpi.so of this program, got one without spillway_open_mpi");
  return std::unique_ptr<Communicator>(open(options));
}

}  // namespace spillway::parallel
