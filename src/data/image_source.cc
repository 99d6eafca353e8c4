#include "data/image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr i64 kClasses = 10, kImageBytes = i64{3} * 32 * 32, kRecordBytes = 1 + kImageBytes;

class Cifar10 final : public ImageSource {
 public:
  Cifar10(std::string name, const std::vector<fs::path>& paths) : name_(std::move(name)) {
    for (const fs::path& path : paths) {
      File file = File::open(path);
      const i64 count = file.size_bytes() / kRecordBytes;
      if (count == 0 || file.size_bytes() % kRecordBytes != 0) {
        throw Error(ErrorCode::data, fmt::format("[data] {}: expected CIFAR-10's records of {} bytes, got {} bytes, which is {}: it is cut "
                                                 "short, or not of the binary version",
                                                 path.string(), kRecordBytes, file.size_bytes(),
                                                 count == 0 ? "not one" : fmt::format("{} and a rest", count)));
      }
      check_classes(file, count);
      parts_.push_back({std::move(file), images_});
      images_ += count;
    }
  }

  const std::string& name() const override { return name_; }
  i64 images() const override { return images_; }
  const Shape& shape_CHW() const override { return shape_; }

  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    require(image >= 0 && image < images_ && std::ssize(pixels_CHW) == kImageBytes, "[data] there is no such image");
    const Part& part = *std::prev(std::ranges::upper_bound(parts_, image, {}, &Part::first));
    std::array<u8, kRecordBytes> record;
    part.file.read((image - part.first) * kRecordBytes, std::as_writable_bytes(std::span(record)));
    std::copy(record.begin() + 1, record.end(), pixels_CHW.begin());
    return record[0];
  }

 private:
  struct Part {
    File file;
    i64 first;  // number of its first image
  };

  static void check_classes(const File& file, i64 count) {
    constexpr i64 kAtOnce = 64;
    std::vector<u8> records(static_cast<size_t>(kAtOnce * kRecordBytes));
    for (i64 image = 0; image < count; image += kAtOnce) {
      const i64 n = std::min(kAtOnce, count - image);
      file.read(image * kRecordBytes, std::as_writable_bytes(std::span(records)).first(static_cast<size_t>(n * kRecordBytes)));
      for (i64 i = 0; i < n; ++i) {
        const u8 label = records[static_cast<size_t>(i * kRecordBytes)];
        if (label >= kClasses) {
          throw Error(ErrorCode::data, fmt::format("[data] {}: expected classes from 0 to {}, got {} of image {} (byte {}): it is not "
                                                   "CIFAR-10's binary version, or damaged",
                                                   file.path().string(), kClasses - 1, label, image + i, (image + i) * kRecordBytes));
        }
      }
    }
  }

  std::string name_;
  std::vector<Part> parts_;
  i64 images_ = 0;
  const Shape shape_{3, 32, 32};
};

std::vector<fs::path> files_in(const fs::path& folder, Split split) {
  if (split == Split::held_out && fs::exists(folder / "test_batch.bin")) return {folder / "test_batch.bin"};
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) paths.push_back(entry.path());
  }
  if (error) throw Error(ErrorCode::data, fmt::format("[data] cannot list the folder {}: {}", folder.string(), error.message()));
  if (paths.empty() || split == Split::held_out) {
    throw Error(ErrorCode::usage,
                fmt::format("[data] expected CIFAR-10's {} in the folder {}, found none: {}",
                            split == Split::held_out ? "test_batch.bin" : "data_batch_*.bin", folder.string(),
                            fs::exists(folder / "data_batch_1") ? "this is its Python version, give the binary one"
                                                                : "give the folder cifar-10-batches-bin of its binary version"));
  }
  std::ranges::sort(paths, {}, [](const fs::path& p) { return p.filename().string(); });
  return paths;
}

std::unique_ptr<ImageSource> open_one(const fs::path& path, Split split) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw Error(ErrorCode::data, fmt::format("[data] {} is not there", path.string()));
  if (fs::is_directory(status)) return std::make_unique<Cifar10>(path.string(), files_in(path, split));
  if (path.extension() == ".bin") return std::make_unique<Cifar10>(path.string(), std::vector{path});
  throw Error(ErrorCode::usage, fmt::format("[data] expected CIFAR-10's binary version, a folder or a .bin file, got {}{}", path.string(),
                                            path.extension() == ".gz" ? ": unpack it first (tar xf)" : ""));
}

}  // namespace

std::vector<std::unique_ptr<ImageSource>> open_cifar10(const std::vector<std::string>& paths, Split split) {
  std::vector<std::unique_ptr<ImageSource>> sources;
  for (const std::string& path : paths) sources.push_back(open_one(path, split));
  return sources;
}

}  // namespace spillway::data
