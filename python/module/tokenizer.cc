// Binds a model's tokenizer: texts to token ids and back, with the names of transformers.
#include "python/module/tokenizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/module/arrays.h"

namespace spillway::python {
namespace {

nb::object text_of(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

// Returns the ids of a Tensor, an array, a list or one number.
std::vector<i32> ids_in(const nb::object& given) {
  const Tensor ids = whole_numbers(given, "ids");
  if (ids.rank() > 1) throw WrongValue("ids: expected one row of token ids, got shape " + to_string(ids.shape()));
  const auto all = ids.span<i32>();
  return {all.begin(), all.end()};
}

std::optional<std::string> token_of(const Tokenizer& self, const std::optional<i32>& id) {
  return id ? std::optional(self.tokenizer->token(*id)) : std::nullopt;
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Turns text into token ids and back, as the tokenizer of the same files in transformers does.")
      .def(
          "__init__",
          [](Tokenizer* self, const nb::object& path) {
            if (nb::isinstance<Tokenizer>(path)) {
              new (self) Tokenizer(nb::cast<const Tokenizer&>(path));
            } else {
              new (self) Tokenizer{data::read_tokenizer(path_of(path))};
            }
          },
          nb::arg("path"), nb::sig("def __init__(self, path: str | os.PathLike) -> None"),
          "Reads a tokenizer.json, or the folder that has one.")
      .def(
          "encode",
          [](const Tokenizer& self, const Word& text, const Flag& special) {
            return special ? data::encode_with_around(*self.tokenizer, text.text()) : self.tokenizer->encode(text.text());
          },
          nb::arg("text"), nb::arg("add_special_tokens") = true,
          "The token ids of a text. add_special_tokens: with those that the tokenizer puts around a text.")
      .def(
          "decode",
          [](const Tokenizer& self, const nb::object& ids, const Flag& skip) { return text_of(self.tokenizer->decode(ids_in(ids), skip)); },
          nb::arg("token_ids"), nb::arg("skip_special_tokens") = false,
          nb::sig("def decode(self, token_ids: object, skip_special_tokens: bool = False) -> str"), "The text of token ids.")
      .def(
          "convert_tokens_to_ids", [](const Tokenizer& self, const Word& token) { return self.tokenizer->id_of(token.text()); },
          nb::arg("token"), "The id of a token as the vocabulary writes it; None if there is none.")
      .def(
          "convert_ids_to_tokens",
          [](const Tokenizer& self, const nb::object& ids) {
            nb::list tokens;
            for (const i32 id : ids_in(ids)) tokens.append(text_of(self.tokenizer->token(id)));
            return tokens;
          },
          nb::arg("ids"), nb::sig("def convert_ids_to_tokens(self, ids: object) -> list[str]"))
      .def("__len__", [](const Tokenizer& self) { return self.tokenizer->vocabulary(); })
      .def_prop_ro(
          "vocab_size", [](const Tokenizer& self) { return self.tokenizer->vocabulary(); }, "The number of token ids.")
      .def_prop_ro("eos_token_id", [](const Tokenizer& self) { return self.tokenizer->named().end_of_text; })
      .def_prop_ro("bos_token_id", [](const Tokenizer& self) { return self.tokenizer->named().begin_of_text; })
      .def_prop_ro("pad_token_id", [](const Tokenizer& self) { return self.tokenizer->named().padding; })
      .def_prop_ro("unk_token_id", [](const Tokenizer& self) { return self.tokenizer->named().unknown; })
      .def_prop_ro("eos_token", [](const Tokenizer& self) { return token_of(self, self.tokenizer->named().end_of_text); })
      .def_prop_ro("bos_token", [](const Tokenizer& self) { return token_of(self, self.tokenizer->named().begin_of_text); })
      .def("__repr__", [](const Tokenizer& self) { return "Tokenizer(" + std::to_string(self.tokenizer->vocabulary()) + " tokens)"; });
}

}  // namespace spillway::python
