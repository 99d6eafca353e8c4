// Defines SharedLibrary, a library opened at run time, so that the program starts on machines without it (CUDA's libraries,
// the MPI plug-in). The destructor closes the library, so the object must outlive every use of functions found in it.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace spillway {

class SharedLibrary {
 public:
  /// Tells whether libraries that are opened later can use the symbols of this library (RTLD_GLOBAL).
  enum class Symbols { its_own, shared };

  SharedLibrary() = default;
  /// Opens the first of `names` that can be loaded with all its dependencies. Names are paths, or file names for the loader to find
  /// (LD_LIBRARY_PATH, ld.so.conf).
  explicit SharedLibrary(const std::vector<std::string>& names, Symbols symbols = Symbols::its_own);
  SharedLibrary(SharedLibrary&& other) noexcept { *this = std::move(other); }
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  ~SharedLibrary();

  explicit operator bool() const { return handle_ != nullptr; }
  /// Returns the name under which the library was opened.
  const std::string& name() const { return name_; }
  /// Returns the loader's message for each name that could not be opened, in order.
  const std::vector<std::string>& problems() const { return problems_; }

  /// Returns the address of a function or variable of the open library, or null if there is none of this name.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string name_;
  std::vector<std::string> problems_;
};

}  // namespace spillway
