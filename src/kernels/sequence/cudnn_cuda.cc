#include "kernels/sequence/cudnn_cuda.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"

// Lists the functions in struct Library, each with its name in cuDNN.
#define SPILLWAY_CUDNN(each)                               \
  each(version, cudnnGetVersion);                          \
  each(error_string, cudnnGetErrorString);                 \
  each(last_error, cudnnGetLastErrorString);               \
  each(create, cudnnCreate);                               \
  each(set_stream, cudnnSetStream);                        \
  each(descriptor_create, cudnnBackendCreateDescriptor);   \
  each(descriptor_destroy, cudnnBackendDestroyDescriptor); \
  each(finalize, cudnnBackendFinalize);                    \
  each(set, cudnnBackendSetAttribute);                     \
  each(get, cudnnBackendGetAttribute);                     \
  each(execute, cudnnBackendExecute)

#ifdef __CUDA_EMULATED__
extern "C" {
size_t cudnnGetVersion();
const char* cudnnGetErrorString(int);
void cudnnGetLastErrorString(char*, size_t);
int cudnnCreate(void**);
int cudnnSetStream(void*, CUstream_st*);
int cudnnBackendCreateDescriptor(int, void**);
int cudnnBackendDestroyDescriptor(void*);
int cudnnBackendFinalize(void*);
int cudnnBackendSetAttribute(void*, int, int, spillway::i64, const void*);
int cudnnBackendGetAttribute(void*, int, int, spillway::i64, spillway::i64*, void*);
int cudnnBackendExecute(void*, void*, void*);
}
#endif

namespace spillway::kernels::cudnn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libcudnn.so.9";
constexpr const char* kCure =
    "install cuDNN 9.15.1 or newer (pip install nvidia-cudnn-cu13; on a cluster: module load cudnn) and add the folder of libcudnn.so.9 to "
    "LD_LIBRARY_PATH, or leave out --attention cudnn";

template <class Function>
void find(const SharedLibrary& opened, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(opened.find(name));
  if (!found) throw Error(ErrorCode::usage, fmt::format("[attention] expected {} in {}, got none: {}", name, opened.name(), kCure));
}

// Adds the paths at which an nvidia-cudnn wheel would have the library, for each python3* folder in `lib`.
void add_wheels(const fs::path& lib, std::vector<std::string>& names) {
  std::vector<std::string> here;
  std::error_code missing;
  for (const auto& python : fs::directory_iterator(lib, missing)) {
    if (!python.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path one = python.path() / packages / "nvidia/cudnn/lib" / kName;
      if (fs::exists(one, missing)) here.push_back(one.string());
    }
  }
  std::ranges::sort(here, std::greater());
  names.insert(names.end(), here.begin(), here.end());
}

Library open_first() {
#ifdef __CUDA_EMULATED__
  Library linked;
#define SPILLWAY_TAKE(member, function) linked.member = &(function)
  SPILLWAY_CUDNN(SPILLWAY_TAKE);
#undef SPILLWAY_TAKE
  return linked;
#else
  return open(library_names());
#endif
}

}  // namespace

std::string too_old(const Library& found) {
  if (found.version_number() >= kLeastVersion) return "";
  return fmt::format("[attention] expected cuDNN {} or newer, got {}{}: {}", version_text(kLeastVersion),
                     version_text(found.version_number()), found.library ? " in " + found.library.name() : std::string(), kCure);
}

std::string version_text(i64 version) { return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100); }

std::vector<std::string> library_names() {
  std::vector<std::string> names = {kName};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* folder = std::getenv(variable)) add_wheels(fs::path(folder) / "lib", names);
  }
  names.push_back(std::string("/usr/local/cuda/lib64/") + kName);
  if (const char* home = std::getenv("HOME")) add_wheels(fs::path(home) / ".local/lib", names);
  add_wheels("/usr/local/lib", names);
  add_wheels("/usr/lib", names);
  return names;
}

Library open(const std::vector<std::string>& names) {
  Library opened;
  opened.library = SharedLibrary(names);
  if (!opened.library) {
    throw Error(ErrorCode::usage, fmt::format("[attention] expected cuDNN for --attention cudnn, got none ({}): {}",
                                              fmt::join(opened.library.problems(), "; "), kCure));
  }
#define SPILLWAY_FIND(member, function) find(opened.library, #function, opened.member)
  SPILLWAY_CUDNN(SPILLWAY_FIND);
#undef SPILLWAY_FIND
  return opened;
}

const Library& library() {
  // cuDNN is never closed, because the GPU may still run its kernels when the process ends
  static const Library& one = *new Library(open_first());
  return one;
}

void check(int status, std::string_view call) {
  if (status == kSuccess) return;
  char said[2048] = "";
  library().last_error(said, sizeof said);
  std::string text = said;
  for (char& c : text) c = c == '\n' ? ' ' : c;
  throw Error(ErrorCode::io,
              fmt::format("[cudnn] expected {} to succeed, got {} ({}): {}", call, library().error_string(status), status, text));
}

Descriptor::Descriptor(Kind kind) {
  RawDescriptor made = nullptr;
  check(library().descriptor_create(static_cast<int>(kind), &made), "cudnnBackendCreateDescriptor");
  raw_.reset(made);
}

void Descriptor::set(Attribute attribute, Type type, i64 count, const void* values) const {
  const int status = library().set(raw(), static_cast<int>(attribute), static_cast<int>(type), count, values);
  if (status != kSuccess) check(status, fmt::format("cudnnBackendSetAttribute({})", static_cast<int>(attribute)));
}

void Descriptor::set(Attribute attribute, const std::vector<i64>& values) const {
  set(attribute, Type::int64, static_cast<i64>(values.size()), values.data());
}

void Descriptor::set(Attribute attribute, const Descriptor& value) const { set(attribute, std::vector<RawDescriptor>{value.raw()}); }

void Descriptor::set(Attribute attribute, const std::vector<RawDescriptor>& values) const {
  set(attribute, Type::descriptor, static_cast<i64>(values.size()), values.data());
}

void Descriptor::finalize() const { check(library().finalize(raw()), "cudnnBackendFinalize"); }

bool Descriptor::try_finalize() const { return library().finalize(raw()) == kSuccess; }

i64 Descriptor::number(Attribute attribute) const {
  i64 count = 0, value = 0;
  check(library().get(raw(), static_cast<int>(attribute), static_cast<int>(Type::int64), 1, &count, &value), "cudnnBackendGetAttribute");
  return value;
}

int Descriptor::enumerator(Attribute attribute, Type type) const {
  i64 count = 0;
  int value = 0;
  check(library().get(raw(), static_cast<int>(attribute), static_cast<int>(type), 1, &count, &value), "cudnnBackendGetAttribute");
  return value;
}

std::vector<Descriptor> Descriptor::descriptors(Attribute attribute, Kind kind, i64 most) const {
  std::vector<Descriptor> all;
  std::vector<RawDescriptor> filled;
  for (i64 i = 0; i < most; ++i) filled.push_back(all.emplace_back(kind).raw());
  i64 count = 0;
  check(library().get(raw(), static_cast<int>(attribute), static_cast<int>(Type::descriptor), most, &count, filled.data()),
        "cudnnBackendGetAttribute");
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(std::min(count, most)), all.end());
  return all;
}

}  // namespace spillway::kernels::cudnn
