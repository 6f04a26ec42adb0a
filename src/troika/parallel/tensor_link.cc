#include "troika/parallel/tensor_link.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "troika/base/error.h"

namespace troika {
namespace {

// Messages of a pair arrive in order, so the numbers say what a message is, and the tag only that it is ours.
constexpr int64_t kHeaderTag = 0x74726f696b61, kBytesTag = kHeaderTag + 1;

struct Header {
  int64_t op = 0, stage = 0, micro_batch = 0, peer = 0, step = 0;
  int64_t ticket = 0;  // on the shelf; 0: bytes follow
  int64_t tensors = 0;
  int64_t loss_sum = 0, weight = 0;  // the bits of doubles

  Elements elements() { return {this, sizeof(Header) / sizeof(int64_t), ElementType::int64}; }
  Action action() const {
    return {static_cast<Op>(op), static_cast<int>(stage), static_cast<int>(micro_batch),
            static_cast<int>(peer)};
  }
};

/// One tensor's numbers ahead of its bytes.
struct Description {
  int64_t defined = 0, type = 0, needs_gradient = 0, dimensions = 0, words = 0, sample_dim = 0;
  Elements elements() { return {this, sizeof(Description) / sizeof(int64_t), ElementType::int64}; }
};

constexpr int64_t kWord = sizeof(int64_t);

}  // namespace

/// Where parcels wait between thread ranks. Thread-safe. It lives as long as the last rank, so that what is
/// under way when a run fails is freed with it.
struct TensorLink::Shelf {
  std::mutex mutex;  // guards the rest
  int64_t last_ticket = 0;
  std::unordered_map<int64_t, Parcel> parcels;

  int64_t put(Parcel parcel) {
    const std::lock_guard lock(mutex);
    parcels.emplace(++last_ticket, std::move(parcel));
    return last_ticket;
  }
  Parcel take(int64_t ticket) {
    const std::lock_guard lock(mutex);
    const auto found = parcels.find(ticket);
    TROIKA_ASSERT(found != parcels.end(), fmt::format("no parcel has ticket {}", ticket));
    Parcel parcel = std::move(found->second);
    parcels.erase(found);
    return parcel;
  }
};

TensorLink::TensorLink(Communicator& lanes, bool copies) : lanes_(lanes) {
  if (copies || !lanes.shares_memory()) return;
  if (lanes.rank() == 0) shelf_ = std::make_shared<Shelf>();
  if (lanes.size() == 1) return;
  auto address = reinterpret_cast<int64_t>(&shelf_);
  lanes.broadcast({&address, 1, ElementType::int64}, 0);
  if (lanes.rank() != 0) shelf_ = *reinterpret_cast<std::shared_ptr<Shelf>*>(address);
  lanes.barrier();  // lane 0's handle stays where it is until all have theirs
}

TensorLink::~TensorLink() = default;

void TensorLink::send(const Action& message, int64_t step, Parcel parcel, int to_lane) {
  Header header{static_cast<int64_t>(message.op), message.stage, message.micro_batch, message.peer, step};
  header.tensors = static_cast<int64_t>(parcel.tensors.size());
  header.loss_sum = std::bit_cast<int64_t>(parcel.loss_sum);
  header.weight = std::bit_cast<int64_t>(parcel.weight);
  if (shelf_ != nullptr) {
    header.ticket = shelf_->put(std::move(parcel));
    lanes_.send(header.elements(), to_lane, kHeaderTag);
  } else {
    lanes_.send(header.elements(), to_lane, kHeaderTag);
    send_bytes(parcel, to_lane);
  }
}

Parcel TensorLink::receive(const Action& message, int64_t step, int from_lane) {
  Header header;
  lanes_.receive(header.elements(), from_lane, kHeaderTag);
  Parcel parcel = shelf_ != nullptr ? shelf_->take(header.ticket) : receive_bytes(header.tensors, from_lane);
  parcel.loss_sum = std::bit_cast<double>(header.loss_sum);
  parcel.weight = std::bit_cast<double>(header.weight);
  if (header.action() != message || header.step != step) {
    fail(
        "lane {} sent {} of step {} where lane {} expects {} of step {}: the ranks don't run the same "
        "schedule",
        from_lane, to_string(header.action()), header.step, lanes_.rank(), to_string(message), step);
  }
  return parcel;
}

void TensorLink::send_bytes(const Parcel& parcel, int to_lane) {
  for (size_t i = 0; i < parcel.tensors.size(); ++i) {
    const at::Tensor& tensor = parcel.tensors[i];
    Description description;
    description.defined = tensor.defined() ? 1 : 0;
    description.needs_gradient = i < parcel.needs_gradient.size() ? parcel.needs_gradient[i] : 0;
    if (i < parcel.sample_dims.size()) description.sample_dim = parcel.sample_dims[i];
    at::Tensor dense;
    std::vector<int64_t> sizes;
    if (tensor.defined()) {
      dense = tensor.detach().contiguous();
      sizes = dense.sizes().vec();
      description.type = static_cast<int64_t>(dense.scalar_type());
      description.dimensions = dense.dim();
      description.words = (static_cast<int64_t>(dense.nbytes()) + kWord - 1) / kWord;
    }
    lanes_.send(description.elements(), to_lane, kBytesTag);
    if (!sizes.empty()) {
      lanes_.send({sizes.data(), static_cast<int64_t>(sizes.size()), ElementType::int64}, to_lane, kBytesTag);
    }
    if (description.words == 0) continue;
    // Any type travels as whole words.
    std::vector<int64_t> words(static_cast<size_t>(description.words));
    std::memcpy(words.data(), dense.const_data_ptr(), dense.nbytes());
    lanes_.send({words.data(), description.words, ElementType::int64}, to_lane, kBytesTag);
  }
}

Parcel TensorLink::receive_bytes(int64_t tensors, int from_lane) {
  Parcel parcel;
  for (int64_t i = 0; i < tensors; ++i) {
    Description description;
    lanes_.receive(description.elements(), from_lane, kBytesTag);
    parcel.needs_gradient.push_back(description.needs_gradient != 0);
    parcel.sample_dims.push_back(static_cast<int>(description.sample_dim));
    at::Tensor& tensor = parcel.tensors.emplace_back();
    if (description.defined == 0) continue;
    std::vector<int64_t> sizes(static_cast<size_t>(description.dimensions));
    if (!sizes.empty()) {
      lanes_.receive({sizes.data(), description.dimensions, ElementType::int64}, from_lane, kBytesTag);
    }
    tensor = at::empty(sizes, at::TensorOptions().dtype(static_cast<at::ScalarType>(description.type)));
    if (description.words == 0) continue;
    std::vector<int64_t> words(static_cast<size_t>(description.words));
    lanes_.receive({words.data(), description.words, ElementType::int64}, from_lane, kBytesTag);
    std::memcpy(tensor.mutable_data_ptr(), words.data(), tensor.nbytes());
  }
  return parcel;
}

}  // namespace troika
