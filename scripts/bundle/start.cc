// bin/spillway of a bundle, and every other program in bin: starts the one of its name in libexec with the bundle's libraries, behind them
// those of LD_LIBRARY_PATH (CUDA's are the node's). Linked statically, so that it runs on any Linux of this architecture, however old its C
// library, and where there is none. The C library and its loader come with the bundle; where the system's own are newer they are taken
// instead, so that what is loaded at run time (MPI) finds what it was built for.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// "GNU C Library (…) stable release version 2.36." stands in every libc.so.6; 0 where it does not.
int minor_version(const fs::path& libc) {
  std::ifstream file(libc, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const std::string banner = "release version 2.";
  const size_t at = bytes.find(banner);
  return at == std::string::npos ? 0 : std::atoi(bytes.c_str() + at + banner.size());
}

fs::path first_there(const std::vector<fs::path>& candidates) {
  for (const fs::path& path : candidates) {
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return path;
  }
  return {};
}

}  // namespace

int main(int count, char** given) {
  const fs::path self = fs::read_symlink("/proc/self/exe"), root = self.parent_path().parent_path();
  const fs::path own = root / "lib" / "glibc";
  const fs::path system_loader = first_there({"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"});
  const fs::path system_libc =
      first_there({"/lib64/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/usr/lib/libc.so.6"});
  const bool newer = !system_loader.empty() && !system_libc.empty() && minor_version(system_libc) > minor_version(own / "libc.so.6");
  const fs::path loader = newer ? system_loader : own / "ld.so";
  std::string libraries = (root / "lib").string();
  if (!newer) libraries += ":" + own.string();
  if (const char* others = std::getenv("LD_LIBRARY_PATH"); others != nullptr && *others != '\0') libraries += std::string(":") + others;
  const std::string program = root / "libexec" / self.filename();
  setenv("SPILLWAY_PROGRAM", (root / "bin" / "spillway").c_str(), 1);  // what starts another rank
  std::vector<std::string> words{loader, "--library-path", libraries, program};
  words.insert(words.end(), given + 1, given + count);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(loader.c_str(), arguments.data());
  std::fprintf(stderr, "spillway: cannot start %s: %s; unpack the whole archive again\n", loader.c_str(), std::strerror(errno));
  return 5;
}
