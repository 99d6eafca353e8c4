#include "data/files/wrong_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <system_error>

#include "base/error.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds =
    "text (.txt, or a folder of .txt), rows (.jsonl), both also as .gz or .zst, or tokens (.bin of nanoGPT, llm.c or Megatron)";

bool ends_in(const fs::path& path, std::initializer_list<const char*> endings) {
  const std::string name = path.filename().string();
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

// Returns how to convert the file so that it can be read.
std::string cure_for(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto pandas = [&](const char* read) {
    return fmt::format("convert its rows in Python: pandas.{}(\"{}\").to_json(\"{}.jsonl\", orient=\"records\", lines=True)", read,
                       path.string(), path.stem().string());
  };
  if (ends_in(path, {".json", ".json.gz"}))
    return "rows are read as JSON Lines (one object per line) from a file that ends in .jsonl; `jq -c '.[]' FILE.json > FILE.jsonl` "
           "converts a JSON list";
  if (ends_in(path, {".parquet"})) return pandas("read_parquet");
  if (ends_in(path, {".csv", ".csv.gz"})) return pandas("read_csv");
  if (ends_in(path, {".tsv", ".tsv.gz"})) return pandas("read_table");
  if (ends_in(path, {".xlsx", ".xls"})) return pandas("read_excel");
  if (ends_in(path, {".arrow", ".feather"}))
    return fmt::format("convert its rows in Python: datasets.Dataset.from_file(\"{}\").to_json(\"{}.jsonl\")", path.string(),
                       path.stem().string());
  if (ends_in(path, {".npy", ".npz", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".safetensors"}))
    return "write token ids to a token file in Python: numpy.asarray(ids, dtype=\"uint16\").tofile(\"tokens.bin\"), or texts to a .txt";
  if (ends_in(path, {".idx"})) return "give the .bin file of the same name";
  if (ends_in(path, {".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".7z"})) return "unpack it first";
  if (ends_in(path, {".gz"})) return "unpack it first (gunzip)";
  if (ends_in(path, {".pdf", ".docx", ".doc", ".epub", ".html"})) return "extract its text to a file that ends in .txt";
  return "rename the file if it has one of these formats, or make a token file from it with `spillway tokenize`";
}

// Returns how to get the data that a missing path names, or an empty text if the path looks like that of a file.
std::string how_to_get(const std::string& path) {
  const auto begins = [&](const char* scheme) { return path.starts_with(scheme); };
  if (begins("https://huggingface.co/datasets/") || begins("hf://"))
    return ": nothing is downloaded; get it with `hf download --repo-type dataset ORG/NAME --local-dir DIR` and give a file in DIR";
  if (begins("http://") || begins("https://")) return ": nothing is downloaded; get it with `curl -LO URL` and give the path of the file";
  if (path.find("://") != std::string::npos) return ": nothing is downloaded; copy it to this machine first and give the path of the file";
  if (begins("~")) return ": no such file or folder; ~ stands for the home folder only at the start of a word without quotes";
  const bool name = fs::path(path).extension().empty() && !begins(".") && !begins("/") && std::ranges::count(path, '/') <= 1;
  if (!name) return ": no such file or folder";
  return fmt::format(
      ": no such file or folder. Nothing is downloaded; a data set of the Hugging Face Hub becomes a file in Python with "
      "datasets.load_dataset(\"{}\", split=\"train\").to_json(\"data.jsonl\")",
      path);
}

}  // namespace

void refuse_missing(const fs::path& path) {
  throw Error(ErrorCode::data, fmt::format("[data] {} is not there{}", path.string(), how_to_get(path.string())));
}

void refuse_kind(const fs::path& path) {
  throw Error(ErrorCode::usage, fmt::format("[data] expected {}, got {}: {}", kKinds, path.string(), cure_for(path)));
}

void refuse_without_texts(const fs::path& folder) {
  fs::path other;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored); !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    const bool file = at->is_regular_file(ignored);
    if (file && (other.empty() || at->path() < other)) other = at->path();
  }
  const std::string found = other.empty()                        ? "none"
                            : ends_in(other, {".jsonl", ".bin"}) ? other.string()
                                                                 : other.string() + ": " + cure_for(other);
  throw Error(ErrorCode::usage, fmt::format("[data] expected .txt files in the folder {} (files of rows, .jsonl, and of tokens, .bin, are "
                                            "given by their own paths), found {}",
                                            folder.string(), found));
}

}  // namespace spillway::data
