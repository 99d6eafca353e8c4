#include "data/images/cifar.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

struct CifarKind {
  const char* name;
  i64 classes, class_at;  // classes: number of classes; class_at: index of the class byte within a record
  const char* names;      // name of the file that holds the names of the classes
  i64 record_bytes() const { return class_at + 1 + i64{3} * 32 * 32; }
};
constexpr CifarKind kCifar10{"CIFAR-10", 10, 0, "batches.meta.txt"}, kCifar100{"CIFAR-100", 100, 1, "fine_label_names.txt"};

// Reads class names, one per line. If the file does not have a valid name for every class, returns an empty list.
std::vector<std::string> names_in(const fs::path& file, i64 classes) {
  std::vector<std::string> names;
  constexpr i64 kMostBytes = 64 * kKiB;
  std::error_code unseen;
  if (!fs::is_regular_file(file, unseen)) return {};
  std::istringstream lines(File::open(file).text(kMostBytes));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) names.push_back(line);
  }
  return std::ssize(names) == classes ? names : std::vector<std::string>();
}

class Cifar final : public ImageSource {
 public:
  Cifar(const CifarKind& kind, std::string name, const std::vector<fs::path>& paths)
      : kind_(kind),
        name_(std::move(name)),
        format_{{3, 32, 32}, kind.classes, names_in(paths.front().parent_path() / kind.names, kind.classes)} {
    for (const fs::path& path : paths) {
      File file = File::open(path);
      const i64 record = kind_.record_bytes(), count = file.size_bytes() / record;
      if (count == 0 || file.size_bytes() % record != 0) {
        throw Error(ErrorCode::data,
                    fmt::format("[data] {}: expected {} records of {} bytes each, got {} bytes, which is {}: the file is cut short, or is "
                                "not the binary version",
                                path.string(), kind_.name, record, file.size_bytes(),
                                count == 0 ? "less than one record" : fmt::format("{} records and a part of another", count)));
      }
      check_classes(file, count);
      parts_.push_back({std::move(file), images_});
      images_ += count;
    }
  }

  const std::string& name() const override { return name_; }
  i64 images() const override { return images_; }
  const ImageFormat& format() const override { return format_; }

  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    require(image >= 0 && image < images_ && std::ssize(pixels_CHW) == format_.shape_CHW.elems(),
            "[data] expected the index of an image and room for its pixels");
    const Part& part = *std::prev(std::ranges::upper_bound(parts_, image, {}, &Part::first));
    std::vector<u8> record(static_cast<size_t>(kind_.record_bytes()));
    part.file.read((image - part.first) * kind_.record_bytes(), std::as_writable_bytes(std::span(record)));
    std::copy(record.begin() + kind_.class_at + 1, record.end(), pixels_CHW.begin());
    return record[static_cast<size_t>(kind_.class_at)];
  }

 private:
  struct Part {
    File file;
    i64 first;  // index of the file's first image
  };

  void check_classes(const File& file, i64 count) const {
    constexpr i64 kAtOnce = 64;
    const i64 record = kind_.record_bytes();
    std::vector<u8> records(static_cast<size_t>(kAtOnce * record));
    for (i64 image = 0; image < count; image += kAtOnce) {
      const i64 n = std::min(kAtOnce, count - image);
      file.read(image * record, std::as_writable_bytes(std::span(records)).first(static_cast<size_t>(n * record)));
      for (i64 i = 0; i < n; ++i) {
        const i64 label = records[static_cast<size_t>(i * record + kind_.class_at)];
        if (label < kind_.classes) continue;
        throw Error(ErrorCode::data, fmt::format("[data] {}: expected a class from 0 to {}, got {} for image {} (byte {}): the file is not "
                                                 "{}'s binary version, or is damaged",
                                                 file.path().string(), kind_.classes - 1, label, image + i,
                                                 (image + i) * record + kind_.class_at, kind_.name));
      }
    }
  }

  const CifarKind& kind_;
  std::string name_;
  const ImageFormat format_;
  std::vector<Part> parts_;
  i64 images_ = 0;
};

bool is_cifar100_folder(const fs::path& folder) { return fs::exists(folder / "train.bin") || fs::exists(folder / "test.bin"); }

std::vector<fs::path> batches_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) paths.push_back(entry.path());
  }
  if (error) throw Error(ErrorCode::data, fmt::format("[data] cannot list the folder {}: {}", folder.string(), error.message()));
  std::ranges::sort(paths, {}, [](const fs::path& p) { return p.filename().string(); });
  return paths;
}

bool has_python_version(const fs::path& folder) { return fs::exists(folder / "data_batch_1") || fs::exists(folder / "test_batch"); }

std::vector<fs::path> files_in(const fs::path& folder, const CifarKind& kind, Split split) {
  const bool held_out = split == Split::held_out, ten = &kind == &kCifar10;
  const char* wanted = held_out ? (ten ? "test_batch.bin" : "test.bin") : ten ? "data_batch_*.bin" : "train.bin";
  std::vector<fs::path> paths;
  if (ten && !held_out) {
    paths = batches_in(folder);
  } else if (fs::exists(folder / wanted)) {
    paths = {folder / wanted};
  }
  if (!paths.empty()) return paths;
  throw Error(ErrorCode::usage, fmt::format("[data] expected {}'s {} in the folder {}, found none: {}", kind.name, wanted, folder.string(),
                                            has_python_version(folder) ? "this is the Python version, give the binary version"
                                                                       : "give the complete folder of the binary version"));
}

const CifarKind& kind_of_file(const fs::path& path) {
  if (path.filename() == "train.bin" || path.filename() == "test.bin") return kCifar100;
  std::error_code error;
  const auto bytes = static_cast<i64>(fs::file_size(path, error));
  const bool hundred = !error && bytes > 0 && bytes % kCifar100.record_bytes() == 0 && bytes % kCifar10.record_bytes() != 0;
  return hundred ? kCifar100 : kCifar10;
}

}  // namespace

bool is_cifar_folder(const fs::path& folder) {
  return is_cifar100_folder(folder) || has_python_version(folder) || fs::exists(folder / "test_batch.bin") || !batches_in(folder).empty();
}

std::unique_ptr<ImageSource> open_cifar(const fs::path& path, Split split) {
  if (!fs::is_directory(path)) return std::make_unique<Cifar>(kind_of_file(path), path.string(), std::vector{path});
  const CifarKind& kind = is_cifar100_folder(path) ? kCifar100 : kCifar10;
  return std::make_unique<Cifar>(kind, path.string(), files_in(path, kind, split));
}

}  // namespace spillway::data
