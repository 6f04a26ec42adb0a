#include "troika/parallel/named_gather.h"

#include <algorithm>
#include <cstring>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr char kEndOfName = '\0';  // no name has it

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) (text += name) += kEndOfName;
  return text;
}

std::vector<std::string> separated(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = text.find(kEndOfName);
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, std::string_view text) {
  const auto ranks = static_cast<size_t>(communicator.size());
  std::vector<int64_t> sizes(ranks);
  auto mine = static_cast<int64_t>(text.size());
  communicator.all_gather({&mine, 1, ElementType::int64},
                          {sizes.data(), communicator.size(), ElementType::int64});
  // Every rank's part has the size of the longest text, in whole words.
  const size_t words = static_cast<size_t>(*std::ranges::max_element(sizes)) / sizeof(int64_t) + 1;
  std::vector<int64_t> part(words), all(words * ranks);
  if (!text.empty()) std::memcpy(part.data(), text.data(), text.size());
  communicator.all_gather({part.data(), static_cast<int64_t>(words), ElementType::int64},
                          {all.data(), static_cast<int64_t>(all.size()), ElementType::int64});
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + rank * words),
                       static_cast<size_t>(sizes[rank]));
  }
  return texts;
}

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

std::vector<std::string> gather_names(Communicator& communicator, const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const std::string& text : gather_texts(communicator, joined(names_of(tensors)))) {
    std::ranges::move(separated(text), std::back_inserter(names));
  }
  return names;
}

std::vector<NamedTensor> gather_named(Communicator& communicator, TensorLink& link, int64_t step,
                                      std::vector<NamedTensor> mine) {
  const std::vector<std::string> texts = gather_texts(communicator, joined(names_of(mine)));
  // No schedule has this one: it says only that both sides mean the same.
  constexpr Action kCollect{Op::reduce_gradients};
  if (communicator.rank() != 0) {
    Parcel parcel;
    for (const NamedTensor& tensor : mine) parcel.tensors.push_back(tensor.tensor);
    link.send(kCollect, step, std::move(parcel), 0);
    return mine;
  }
  for (int rank = 1; rank < communicator.size(); ++rank) {
    const Parcel parcel = link.receive(kCollect, step, rank);
    const std::vector<std::string> names = separated(texts[static_cast<size_t>(rank)]);
    TROIKA_ASSERT(names.size() == parcel.tensors.size(), fmt::format("{} names", names.size()));
    for (size_t i = 0; i < names.size(); ++i) mine.push_back({names[i], parcel.tensors[i]});
  }
  return mine;
}

}  // namespace troika
