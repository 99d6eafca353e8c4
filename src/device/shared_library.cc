#include "device/shared_library.h"

#include <dlfcn.h>

#include <filesystem>

namespace spillway {
namespace {

bool is_missing_file(const std::string& name) {
  std::error_code unknown;
  return name.find('/') != std::string::npos && !std::filesystem::exists(name, unknown);
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, Symbols symbols) {
  for (const std::string& name : names) {
    if (is_missing_file(name)) {
      problems_.push_back(name + ": file not found");
    } else if ((handle_ = dlopen(name.c_str(), RTLD_NOW | (symbols == Symbols::shared ? RTLD_GLOBAL : RTLD_LOCAL)))) {
      name_ = name;
      return;
    } else {
      const char* said = dlerror();
      problems_.push_back(said ? said : name);
    }
  }
}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  std::swap(problems_, other.problems_);
  return *this;
}

SharedLibrary::~SharedLibrary() {
  if (handle_) dlclose(handle_);
}

void* SharedLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace spillway
