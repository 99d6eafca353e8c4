// Tests the way from lines of data to training rows: token ids and masks agree with the
// reference, the cache handles changed and damaged files, and rows are packed as documented.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "base/crc32c.h"
#include "base/random.h"
#include "data/documents/document_rows.h"
#include "data/documents/line_reader.h"
#include "data/documents/packing.h"
#include "data/documents/prepare.h"
#include "data/documents/prepared_cache.h"
#include "data/template/find_chat_template.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::documents_test {
namespace {

using Json = nlohmann::ordered_json;
using test::bytes_of;
using test::error_of;
using test::put;
using test::TemporaryFolder;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::shared_ptr<const Tokenizer> reference_tokenizer() { return read_tokenizer(test::data("tokenizer/chat/tokenizer.json")); }

DocumentMaker reference_maker(LossOn loss_on = LossOn::by_layout, std::optional<i32> end = 641) {
  ChatTemplate chat(bytes_of(test::data("chat/templates/chatml.jinja")), "chatml.jinja");
  DocumentOptions options;
  options.loss_on = loss_on, options.end_token = end;
  return DocumentMaker(reference_tokenizer(), std::move(chat), std::make_shared<const Json>(Json::object()), options);
}

std::vector<std::string> lines_of(const fs::path& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

std::string mask_text(const std::vector<u8>& mask) {
  std::string text;
  for (const u8 bit : mask) text += bit ? '1' : '0';
  return text;
}

TEST(Documents, HaveTheReferencesIdsAndMasks) {
  const DocumentMaker maker = reference_maker();
  const Json expected = Json::parse(bytes_of(test::data("rows/fixtures/expected.json")));
  int compared = 0;
  for (const Json& one : expected["cases"]) {
    if (!one.contains("ids")) continue;
    const std::string file = one["file"];
    const std::string line = lines_of(test::data("rows/fixtures/" + file)).at(one["line"].get<size_t>() - 1);
    const Document document = maker.make(line, file, one["line"]);
    EXPECT_EQ(document.ids, one["ids"].get<std::vector<i32>>()) << file << " " << one["line"];
    const std::string wanted = one.contains("mask_by_overlap") ? one["mask_by_overlap"] : one["mask"];
    EXPECT_EQ(mask_text(document.counted), wanted) << file << " " << one["line"];
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

// Compares labels with those that Hugging Face's collators write, where -100 marks tokens that do not contribute to the loss.
TEST(Documents, OfTokensAreThoseOfTheirTexts) {
  const DocumentMaker maker = reference_maker(), all = reference_maker(LossOn::all);
  int compared = 0;
  for (const char* name : {"text", "prompt_completion", "messages"}) {
    for (const std::string& line : lines_of(test::data(fmt::format("rows/fixtures/{}.jsonl", name)))) {
      const Document document = maker.make(line, "a", 1);
      Json labels = document.ids;
      for (size_t i = 0; i < document.ids.size(); ++i) {
        if (!document.counted[i]) labels[i] = -100;
      }
      const std::string tokens = Json({{"input_ids", document.ids}, {"labels", labels}}).dump();
      const Document again = maker.make(tokens, "b", 1);
      EXPECT_EQ(again.ids, document.ids);
      EXPECT_EQ(mask_text(again.counted), mask_text(document.counted));
      EXPECT_EQ(mask_text(all.make(tokens, "b", 1).counted), std::string(document.ids.size(), '1'));
      ++compared;
    }
  }
  EXPECT_GE(compared, 8);
  const DocumentMaker completions = reference_maker(LossOn::completion);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { completions.make(R"({"input_ids": [1]})", "b", 3); }),
              HasSubstr("expected a prompt with a completion"));
}

// A template without {% generation %} blocks, in which each message only appends text, gives the loss mask of a template with blocks.
TEST(Documents, OfATemplateWithoutBlocksCountWhatTheAssistantAdds) {
  ChatTemplate plain(bytes_of(test::data("chat/templates/chatml-plain.jinja")), "plain");
  const DocumentMaker without(reference_tokenizer(), std::move(plain), std::make_shared<const Json>(Json::object()), {});
  const DocumentMaker with = reference_maker();
  const std::string line =
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who built it?"}, {"role": "assistant", "content": "Noah."}, {"role": "user", "content": "Why?"},
          {"role": "assistant", "content": "Rain."}]})";
  std::string flat = line;
  std::erase(flat, '\n');
  const Document a = without.make(flat, "f", 1), b = with.make(flat, "f", 1);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_GT(std::count(a.counted.begin(), a.counted.end(), 1), 4);
  EXPECT_EQ(reference_tokenizer()->decode(a.ids), reference_tokenizer()->decode(b.ids));
  // The chat template removes earlier answers, so a longer conversation does not begin with a shorter one, and no mask can be derived.
  ChatTemplate forgets(
      "{% for m in messages %}{{ m.role }}:{% if loop.last or m.role == 'user' %}{{ m.content }}{% endif %};{% endfor %}{% if "
      "add_generation_prompt %}assistant:{% endif %}",
      "forgets");
  const DocumentMaker hidden(reference_tokenizer(), std::move(forgets), std::make_shared<const Json>(Json::object()), {});
  EXPECT_THAT(error_of(ErrorCode::data, [&] { hidden.make(flat, "f.jsonl", 7); }), HasSubstr("f.jsonl, line 7: expected a chat template"));
}

TEST(Documents, WhatCannotBeMadeNamesTheLine) {
  const DocumentMaker none(reference_tokenizer(), {}, std::make_shared<const Json>(Json::object()), {});
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}]})";
  EXPECT_THAT(error_of(ErrorCode::data, [&] { none.make(chat, "a.jsonl", 3); }), HasSubstr("a.jsonl, line 3: expected a chat template"));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { reference_maker(LossOn::completion).make(chat, "a.jsonl", 4); }),
              HasSubstr("--loss-on completion"));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { reference_maker(LossOn::assistant).make(R"({"text": "x"})", "a.jsonl", 5); }),
              HasSubstr("line 5: expected a conversation"));
  ChatTemplate raises("{{ raise_exception('roles must alternate') }}", "t.jinja");
  const DocumentMaker raising(reference_tokenizer(), std::move(raises), std::make_shared<const Json>(Json::object()), {});
  const std::string said = error_of(ErrorCode::data, [&] { raising.make(chat, "a.jsonl", 6); });
  EXPECT_THAT(said, HasSubstr("a.jsonl, line 6"));
  EXPECT_THAT(said, HasSubstr("roles must alternate"));
}

std::string gzipped(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data())), z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Lines, AreTheSamePackedAndPlainInAnyPieces) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i)
    text += std::string(static_cast<size_t>(i * 7 % 90), static_cast<char>('a' + i % 26)) + "\xe2\x80\xa8" + "\n";
  const auto plain = lines_of(put(folder / "a", text));
  ASSERT_EQ(plain.size(), 20'000u);
  const std::string half = text.substr(0, text.size() / 2), rest = text.substr(text.size() / 2);
  EXPECT_EQ(lines_of(put(folder / "b", gzipped(text))), plain);
  EXPECT_EQ(lines_of(put(folder / "c", zstandard(text))), plain);
  EXPECT_EQ(lines_of(put(folder / "d", gzipped(half) + gzipped(rest))), plain) << "several parts are one text";
  EXPECT_EQ(lines_of(put(folder / "e", zstandard(half) + zstandard(rest))), plain);
  EXPECT_EQ(lines_of(put(folder / "f", "x\n\ny")), (std::vector<std::string>{"x", "", "y"})) << "the last line needs no end";
  EXPECT_EQ(lines_of(put(folder / "g", "")), std::vector<std::string>());
  for (const auto& [name, packed] : {std::pair("h", gzipped(text)), {"i", zstandard(text)}}) {
    const fs::path cut = put(folder / name, packed.substr(0, packed.size() - 20));
    EXPECT_THAT(error_of(ErrorCode::data, [&] { lines_of(cut); }), HasSubstr("damage"));
    std::string wrong = packed;
    for (size_t at = 100; at < 140; ++at) wrong[at] ^= 0x55;
    EXPECT_THAT(error_of(ErrorCode::data, [&] { lines_of(put(folder / name, wrong)); }), HasSubstr("expected"));
  }
}

PackedRows checked(const std::vector<u32>& lengths, i64 row_tokens) {
  const PackedRows rows = pack_documents(lengths, row_tokens);
  std::vector<u32> seen = rows.documents;
  std::ranges::sort(seen);
  std::vector<u32> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all) << "each document once";
  i64 tokens = 0;
  for (i64 r = 0; r < rows.rows(); ++r) {
    i64 filled = 0;
    for (u32 i = rows.begin[static_cast<size_t>(r)]; i < rows.begin[static_cast<size_t>(r) + 1]; ++i) filled += lengths[rows.documents[i]];
    EXPECT_TRUE(filled > 0 && filled <= row_tokens) << "row " << r << " has " << filled;
    tokens += filled;
  }
  const i64 fewest = ceil_div(tokens, row_tokens);
  EXPECT_LE(rows.rows(), 11 * fewest / 9 + 4) << "of at least " << fewest;
  return rows;
}

TEST(Packing, PutsEachDocumentIntoOneRowAndFewRowsInAll) {
  for (const u64 seed : {1u, 2u, 3u}) {
    for (const i64 row : {1, 7, 64, 1000, 5000}) {
      std::vector<u32> lengths(3000);
      for (size_t i = 0; i < lengths.size(); ++i) {
        const double x = uniform(RandomKey{seed}, static_cast<u64>(row), i);
        lengths[i] = static_cast<u32>(1 + static_cast<i64>(x * x * static_cast<double>(row - 1)));
      }
      checked(lengths, row);
    }
  }
  checked({}, 10);
  EXPECT_EQ(checked({6, 5, 4, 3, 2}, 10).rows(), 2) << "6 + 4 and 5 + 3 + 2";
  const std::vector<u32> many(100'000, 3);
  EXPECT_EQ(checked(many, 1024).rows(), ceil_div(100'000, 341));
  EXPECT_EQ(pack_documents(many, 1024).documents, pack_documents(many, 1024).documents);
}

PreparationOptions options_in(const fs::path& cache, int threads = 2) {
  PreparationOptions options;
  options.cache = cache, options.tokenizer = "t", options.threads = threads;
  return options;
}

std::vector<u32> words_of(const PreparedFile& file) {
  std::vector<u32> all;
  for (i64 d = 0; d < file.counts().documents; ++d) {
    std::vector<u32> some(static_cast<size_t>(file.document_tokens(d)));
    file.read_document(d, some);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

size_t files_in(const fs::path& folder, const std::string& ending) {
  return static_cast<size_t>(
      std::ranges::count_if(fs::directory_iterator(folder), [&](const auto& e) { return e.path().extension() == ending; }));
}

std::string rows_text(int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i)
    text += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", std::string(static_cast<size_t>(i % 50), 'p'),
                        std::string(static_cast<size_t>(1 + i % 33), 'c'));
  return text;
}

TEST(Preparation, IsDoneOnceWhateverTheThreads) {
  const TemporaryFolder folder;
  const DocumentMaker maker = reference_maker();
  const fs::path path = put(folder / "a.jsonl", rows_text(40'000));
  const auto one = prepare(path, maker, options_in(folder / "one", 1)), three = prepare(path, maker, options_in(folder / "three", 3));
  EXPECT_EQ(words_of(*one), words_of(*three));
  EXPECT_EQ(one->counts().documents, 40'000);
  EXPECT_EQ(one->counts().lines, 40'000);
  put(path, rows_text(39'999));
  EXPECT_EQ(prepare(path, maker, options_in(folder / "one"))->counts().documents, 39'999);
  EXPECT_EQ(files_in(folder / "one", ".tokens"), 2u);
}

TEST(Preparation, ByManyAtOnceIsOne) {
  const TemporaryFolder folder;
  const DocumentMaker maker = reference_maker();
  const fs::path path = put(folder / "a.jsonl", rows_text(5000));
  std::vector<std::vector<u32>> words(4);
  std::vector<std::thread> threads;
  for (auto& own : words) threads.emplace_back([&] { own = words_of(*prepare(path, maker, options_in(folder / "cache", 1))); });
  for (std::thread& one : threads) one.join();
  for (const auto& own : words) EXPECT_EQ(own, words[0]);
  EXPECT_EQ(files_in(folder / "cache", ".tokens"), 1u);
}

TEST(Preparation, ADamagedCacheIsMadeAnewAndNoneIsLeftOfABadFile) {
  const TemporaryFolder folder;
  const DocumentMaker maker = reference_maker();
  const fs::path path = put(folder / "a.jsonl", rows_text(100)), cache = folder / "cache";
  const std::vector<u32> want = words_of(*prepare(path, maker, options_in(cache)));
  fs::path file;
  for (const auto& entry : fs::directory_iterator(cache)) file = entry.path().extension() == ".tokens" ? entry.path() : file;
  const std::string whole = bytes_of(file);
  for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{25}, whole.size() - 1}) {
    std::string wrong = whole;
    wrong[at] ^= 4;
    put(file, wrong);
    EXPECT_THROW(PreparedFile(file, "x"), Error) << at;
    EXPECT_EQ(words_of(*prepare(path, maker, options_in(cache))), want) << at;
  }
  put(file, whole.substr(0, whole.size() - 8));
  EXPECT_EQ(words_of(*prepare(path, maker, options_in(cache))), want);
  put(cache / "0123-4.tokens.partial-77", "what a killed process left");
  const fs::path bad = put(folder / "bad.jsonl", rows_text(50) + "{\"prompt\": 1}\n" + rows_text(3));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { prepare(bad, maker, options_in(cache)); }), HasSubstr("bad.jsonl, line 51"));
  EXPECT_EQ(files_in(cache, ".tokens"), 1u);
  EXPECT_FALSE(fs::exists(cache / "0123-4.tokens.partial-77"));
  auto skipping = options_in(cache);
  skipping.skip_bad_lines = true;
  const auto skipped = prepare(bad, maker, skipping);
  EXPECT_EQ(skipped->counts().bad_lines, 1);
  EXPECT_EQ(skipped->counts().documents, 53);
}

// Flips every bit of every token in turn. Reading the file must give what was written, or an error.
TEST(Preparation, ATokenThatChangedOnTheDiskIsNotRead) {
  const TemporaryFolder folder;
  PreparedWriter writer(folder / "p");
  constexpr i64 kDocuments = 9, kTokens = 700;  // fills more than two blocks of tokens that share a checksum
  for (i64 d = 0; d < kDocuments; ++d) {
    writer.add_text(std::vector<i32>(kTokens, static_cast<i32>(d)));
    writer.end_text();
  }
  writer.finish();
  const std::string whole = bytes_of(folder / "p");
  for (i64 token = 0; token < kDocuments * kTokens; token += 331) {
    std::string wrong = whole;
    wrong[static_cast<size_t>(128 + token * 4 + token % 4)] ^= static_cast<char>(1 << token % 8);
    const PreparedFile file(put(folder / "wrong", wrong), "p");
    std::vector<u32> words(kTokens);
    const std::string text = error_of(ErrorCode::data, [&] { file.read_document(token / kTokens, words); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr("is damaged: tokens "), HasSubstr("remove the file"))) << token;
    // the index of a document that shares no checksummed block with the damaged token
    const i64 apart = (token / kTokens + 5) % kDocuments;
    file.read_document(apart, words);
    EXPECT_EQ(words, std::vector<u32>(kTokens, static_cast<u32>(apart)));
  }
}

TEST(Preparation, ADocumentWithoutTokensIsNone) {
  const TemporaryFolder folder;
  {
    PreparedWriter writer(folder / "p");
    writer.end_text();
    writer.add_text(std::vector<i32>{1, 2});
    writer.end_text();
    writer.end_text();
    writer.finish();
  }
  EXPECT_EQ(PreparedFile(folder / "p", "p").counts().documents, 1);
  // A changed file with valid checksums claims that its first document is empty.
  std::string file = bytes_of(folder / "p");
  const size_t tail = 128 + 2 * 4;
  const u64 documents = 2, ends[] = {0, 2};
  std::string more = file.substr(0, tail) + std::string(reinterpret_cast<const char*>(ends), sizeof ends) + file.substr(tail + 8);
  std::memcpy(more.data() + 8, &documents, 8);
  const u32 tail_sum = crc32c(std::as_bytes(std::span(more).subspan(tail)));
  std::memcpy(more.data() + 72, &tail_sum, 4);
  const u32 sum = crc32c(std::as_bytes(std::span(more).first(76)));
  std::memcpy(more.data() + 76, &sum, 4);
  put(folder / "empty", more);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { PreparedFile(folder / "empty", "p"); }), HasSubstr("document ends"));
}

TEST(Preparation, WhoWaitsForAnotherProcessIsToldWhich) {
  const TemporaryFolder folder;
  std::optional<PreparedCache> first(std::in_place, folder / "cache", "a.txt", "0");
  std::vector<std::string> told;
  // `first` is released once `second` has reported that it waits for it.
  const PreparedCache second(folder / "cache", "b.txt", "1", [&](const std::string& holder) {
    told.push_back(holder);
    first.reset();
  });
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0], HasSubstr(", process " + std::to_string(::getpid())));
  EXPECT_EQ(told[1], "");
}

// A kilobyte of zstd may expand to gigabytes, so a row that is too large is refused by its line number before it fills the memory.
TEST(Preparation, ARowOutOfProportionIsRefusedByItsLine) {
  const TemporaryFolder folder;
  const std::string line =
      "{\"prompt\": \"p\", \"completion\": \"" + std::string(static_cast<size_t>(kMostRowBytes) + (1 << 20), 'c') + "\"}\n";
  std::string packed(ZSTD_compressBound(line.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), line.data(), line.size(), 1));
  EXPECT_LT(packed.size(), 100'000u);
  const fs::path path = put(folder / "a.jsonl.zst", packed);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { prepare(path, reference_maker(), options_in(folder / "cache")); }),
              testing::AllOf(HasSubstr("a.jsonl.zst, line 1"), HasSubstr("at most 64 MiB")));
}

TEST(Preparation, OfTextIsItsTokensWhereverItIsCut) {
  const TemporaryFolder folder;
  const auto tokenizer = reference_tokenizer();
  std::string text;
  for (int i = 0; std::ssize(text) < 10 * 1024 * 1024; ++i)
    text += fmt::format("In the beginning {} was the word,\r\n\n and so on {}\n", i, i % 97);
  const DocumentMaker maker = reference_maker();
  const auto file = prepare(put(folder / "a.txt", text), maker, options_in(folder / "cache"));
  std::vector<i32> want = tokenizer->encode(text), got(static_cast<size_t>(file->tokens()));
  want.insert(want.begin(), 640);
  want.push_back(641);
  file->read(0, got);
  EXPECT_TRUE(got == want);
  // The files of a folder are read in the order of their names. The tokens that begin and end a text are added to each file, unless its
  // text has them.
  fs::create_directory(folder / "texts");
  put(folder / "texts/b.txt", "Noah.");
  put(folder / "texts/a.txt.gz", gzipped("In the ark\n"));
  put(folder / "texts/c.txt", "<|begin_of_text|>Noah.<|end_of_text|>");
  put(folder / "texts/other", "no text");
  const auto joined = prepare(folder / "texts", maker, options_in(folder / "cache"));
  std::vector<i32> both = tokenizer->encode("In the ark\n"), second = tokenizer->encode("Noah.");
  both.insert(both.begin(), 640);
  both.push_back(641);
  for (int twice = 0; twice < 2; ++twice) {
    both.push_back(640);
    both.insert(both.end(), second.begin(), second.end());
    both.push_back(641);
  }
  got.resize(static_cast<size_t>(joined->tokens()));
  joined->read(0, got);
  EXPECT_EQ(got, both);
}

TEST(Rows, HaveDocumentsWithBordersAndCutsThatAreCounted) {
  const TemporaryFolder folder;
  PreparedWriter writer(folder / "p");
  const auto document = [](i64 length, i64 prompt, i32 first) {
    Document d;
    for (i64 i = 0; i < length; ++i) d.ids.push_back(first + static_cast<i32>(i)), d.counted.push_back(i >= prompt);
    return d;
  };
  writer.add(document(5, 2, 100));
  writer.add(document(3, 3, 200));   // a document of which no token contributes to the loss
  writer.add(document(12, 4, 300));  // a document that is longer than a row
  writer.add(document(12, 9, 400));  // a document whose targets are all cut off
  writer.add(document(3, 0, 500));
  writer.finish();
  const PreparedFile file(folder / "p", "p");
  EXPECT_EQ(file.counts().without_targets, 1);
  EXPECT_EQ(file.counts().least_vocabulary, 503);
  RowCounts counts;
  const auto rows = document_rows(file, 8, RowPacking::best_fit, counts);
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.cut_documents, 2);
  EXPECT_EQ(counts.cut_tokens, 8);
  EXPECT_EQ(counts.without_targets, 1);
  EXPECT_EQ(rows->rows(), 2);
  EXPECT_TRUE(rows->packed());
  std::set<i32> seen;
  i64 counted = 0;
  for (i64 r = 0; r < 2; ++r) {
    std::vector<i32> tokens(8), targets(8), positions(8);
    counted += rows->read(r, tokens, targets, positions).counted;
    for (size_t t = 0; t < 8; ++t) {
      if (positions[t] == 0) seen.insert(tokens[t]);
      if (targets[t] < 0) continue;
      EXPECT_EQ(targets[t], tokens[t] + 1);
      EXPECT_EQ(positions[t + 1], positions[t] + 1) << "no target lies beyond a border";
    }
  }
  EXPECT_EQ(seen, (std::set<i32>{100, 300, 500}));
  EXPECT_EQ(counted, counts.targets);
  EXPECT_EQ(counted, 3 + 4 + 2);
  RowCounts apart;
  const auto each = document_rows(file, 8, RowPacking::off, apart);
  EXPECT_EQ(each->rows(), 3);
  EXPECT_FALSE(each->packed());
}

// Unshuffled rows, joined, must equal the file. Its documents have random lengths, and its tokens are numbered consecutively.
TEST(DocumentRows, InOrderAreTheFile) {
  TemporaryFolder folder;
  PreparedWriter writer(folder / "p");
  std::vector<i32> want;
  i32 next = 0;
  u32 state = 7;
  for (int d = 0; d < 300; ++d) {
    Document document;
    const u32 length = 2 + (state = state * 1664525u + 1013904223u) % 23;
    for (u32 t = 0; t < length; ++t, ++next) document.ids.push_back(next), document.counted.push_back(1), want.push_back(next);
    writer.add(document);
  }
  writer.finish();
  const PreparedFile file(folder / "p", "p");
  RowCounts counts, best;
  const auto rows = document_rows(file, 32, RowPacking::in_order, counts);
  EXPECT_TRUE(rows->packed());
  std::vector<i32> got;
  for (i64 r = 0; r < rows->rows(); ++r) {
    std::vector<i32> tokens(32), targets(32), positions(32);
    const RowTokens held = rows->read(r, tokens, targets, positions);
    got.insert(got.end(), tokens.begin(), tokens.begin() + held.tokens);
    EXPECT_EQ(std::ranges::count_if(targets, [](i32 target) { return target >= 0; }), held.counted);
  }
  EXPECT_EQ(got, want);
  document_rows(file, 32, RowPacking::best_fit, best);
  EXPECT_LE(best.rows, counts.rows);
  EXPECT_LT(counts.padding(), 0.5) << "two neighbours are longer than a row";
}

TEST(Packing, InOrderFillsTheLastRowOrBeginsTheNext) {
  const PackedRows rows = pack_in_order(std::vector<u32>{5, 3, 4, 8, 1, 7, 1}, 8);
  EXPECT_EQ(rows.documents, (std::vector<u32>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(rows.begin, (std::vector<u32>{0, 2, 3, 4, 6, 7}));
  EXPECT_EQ(pack_in_order({}, 8).rows(), 0);
}

}  // namespace
}  // namespace spillway::data::documents_test
