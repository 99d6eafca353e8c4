// A library opened at run time, so that the program starts where it is missing: what only some machines have, such as CUDA's libraries or
// the plug-in for MPI. Closed with its owner, who must outlive every use of what was found in it.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace spillway {

class SharedLibrary {
 public:
  /// Whether libraries opened later find its symbols (RTLD_GLOBAL).
  enum class Symbols { its_own, shared };

  SharedLibrary() = default;
  /// The first of `names` that can be opened with all it needs: paths, or file names for the loader to find (LD_LIBRARY_PATH, ld.so.conf).
  explicit SharedLibrary(const std::vector<std::string>& names, Symbols symbols = Symbols::its_own);
  SharedLibrary(SharedLibrary&& other) noexcept { *this = std::move(other); }
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  ~SharedLibrary();

  explicit operator bool() const { return handle_ != nullptr; }
  /// Under which it was opened.
  const std::string& name() const { return name_; }
  /// Why not under the names before it, in the loader's words, each with its name: one for each that was tried in vain.
  const std::vector<std::string>& problems() const { return problems_; }

  /// The address of a function or variable of it, null if it has none of this name. Of an open one.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string name_;
  std::vector<std::string> problems_;
};

}  // namespace spillway
