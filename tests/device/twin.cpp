// The "twin" accelerator: torch's PrivateUse1 slot, kept in host memory. Operators look at the
// devices of their tensors as CUDA's do, and are then computed by the CPU's kernels.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>

namespace twin {

using at::IntArrayRef;
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using Maybe = std::optional<Tensor>;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex CARDS = 2;
thread_local DeviceIndex selected = 0;

DeviceIndex card(DeviceIndex asked) { return asked < 0 ? selected : asked; }

void select(Device device) {
  TORCH_CHECK(device.index() < CARDS, "twin: there is no card ", static_cast<int>(device.index()));
  if (device.index() >= 0) selected = device.index();
}

// Memory --------------------------------------------------------------------------------------
// Fresh memory is filled with bytes that read as NaN: what is used before it is written shows.

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* start = bytes == 0 ? nullptr : std::malloc(bytes);
    if (start != nullptr) std::memset(start, 0xFF, bytes);
    return {start, start, &std::free, Device(KIND, selected)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(KIND, &memory);

// Cards and their only stream -----------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  DeviceIndex deviceCount() const noexcept override { return CARDS; }
  Device getDevice() const override { return Device(KIND, selected); }
  void setDevice(Device device) const override { select(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) selected = device.index();
  }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    select(device);
    return before;
  }
  c10::Stream getStream(Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, Device(KIND, card(device.index())));
  }
  c10::Stream getDefaultStream(Device device) const override { return getStream(device); }
  c10::Stream getNewStream(Device device, int) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void block(void*, const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, const DeviceIndex, const c10::EventFlag) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Random numbers: every card has a state of its own, apart from the CPU's -----------------------

struct Draws final : c10::GeneratorImpl {
  mutable at::Generator host;
  Draws(DeviceIndex index, at::Generator given)
      : c10::GeneratorImpl(Device(KIND, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(std::move(given)) {}
  static c10::DeviceType device_type() { return KIND; }
  uint64_t seed() override { return host.seed(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  uint64_t get_offset() const override { return host.get_offset(); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  GeneratorImpl* clone_impl() const override { return new Draws(device_.index(), host.clone()); }
};

at::Generator fresh_draws(DeviceIndex index) {
  return at::make_generator<Draws>(card(index), at::detail::createCPUGenerator());
}

const at::Generator& draws_of(DeviceIndex index) {
  static const std::array<at::Generator, CARDS> all{fresh_draws(0), fresh_draws(1)};
  return all.at(card(index));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return CARDS; }
  DeviceIndex getCurrentDevice() const override { return selected; }
  void setCurrentDevice(DeviceIndex index) const override { select(Device(KIND, index)); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    const DeviceIndex before = selected;
    select(Device(KIND, index));
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  Device getDeviceFromPtr(void*) const override { return Device(KIND, selected); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override { return draws_of(index); }
  at::Generator getNewGenerator(DeviceIndex index) const override { return fresh_draws(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());  // more memory of the same card
    auto wider = memory.allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept != 0) std::memcpy(wider.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(wider));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};
[[maybe_unused]] const bool HOOKED = (at::RegisterPrivateUse1HooksInterface(new Hooks()), true);

// Making, viewing and copying -------------------------------------------------------------------

using Kind = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Where = std::optional<Device>;
using Pinned = std::optional<bool>;
using Format = std::optional<at::MemoryFormat>;
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

Device named(Where where) { return Device(KIND, card(where ? where->index() : -1)); }

Tensor empty(IntArrayRef sizes, Kind kind, Layout, Where where, Pinned, Format format) {
  const c10::DeviceGuard guard(named(where));
  return at::detail::empty_generic(sizes, &memory, KEYS, c10::dtype_or_default(kind), format);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, Kind kind, Layout, Where where, Pinned) {
  const c10::DeviceGuard guard(named(where));
  return at::detail::empty_strided_generic(sizes, strides, &memory, KEYS, c10::dtype_or_default(kind));
}

// A CPU tensor over the memory of the card; lazy conjugation and negation come along.
Tensor mirror(const Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  Tensor seen = at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
                    .strides(tensor.strides())
                    .options(tensor.options().device(at::kCPU))
                    .target_device(at::kCPU)
                    .make_tensor();
  seen._set_conj(tensor.is_conj());
  seen._set_neg(tensor.is_neg());
  return seen;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  const at::AutoDispatchBelowADInplaceOrView below;  // tensors of inference mode are written to as well
  mirror(to).copy_(mirror(from));
  return to;
}

const Tensor& resized(const Tensor& tensor, IntArrayRef sizes, Format format) {
  const c10::DeviceGuard guard(tensor.device());  // more memory of the same card
  return at::native::resize_(tensor, sizes, format);
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) resized(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar item(const Tensor& tensor) { return at::native::_local_scalar_dense_cpu(mirror(tensor)); }

Tensor& set_whole(Tensor& tensor, at::Storage storage) { return at::native::set_(tensor, std::move(storage)); }

Tensor& set_part(Tensor& tensor, at::Storage storage, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  return at::native::set_storage_cpu_(tensor, std::move(storage), offset, sizes, strides);
}

Tensor& set_nothing(Tensor& tensor) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, &memory, /*resizable=*/true);
  return at::native::set_storage_cpu_(tensor, std::move(nothing), 0, {0}, {});
}

void record_stream(Tensor&, c10::Stream) {}

// What torch asks of this slot by names that have no CPU kernel ----------------------------------
// The fused cells are written in plain operators, so that autograd needs no backward of ours.

Tensor with(const Tensor& gates, const Maybe& bias) { return bias && bias->defined() ? gates + *bias : gates; }

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& fed, const Tensor& kept, const Tensor& cell, const Maybe& fed_bias, const Maybe& kept_bias) {
  const auto parts = (with(fed, fed_bias) + with(kept, kept_bias)).chunk(4, 1);
  const auto in = parts[0].sigmoid(), forget = parts[1].sigmoid(), fresh = parts[2].tanh(), out = parts[3].sigmoid();
  const auto next = forget * cell + in * fresh;
  return {out * next.tanh(), next, at::cat({in, forget, fresh, out}, 1)};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& fed, const Tensor& kept, const Tensor& state, const Maybe& fed_bias, const Maybe& kept_bias) {
  const auto f = with(fed, fed_bias).chunk(3, 1), k = with(kept, kept_bias).chunk(3, 1);
  const auto reset = (f[0] + k[0]).sigmoid(), update = (f[1] + k[1]).sigmoid();
  const auto fresh = (f[2] + reset * k[2]).tanh();
  return {(state - fresh) * update + fresh, at::cat({reset, update, fresh, state, k[2]}, 1)};
}

void agree(Device first, Device other, const std::string& where) {
  TORCH_CHECK(first == other, "Expected all tensors to be on the same device, but found at least two devices, ", first,
              " and ", other, "! (", where, ")");
}

Tensor convolve(const Tensor& x, const Tensor& kernel, const Maybe& bias, IntArrayRef stride, IntArrayRef padding,
                IntArrayRef dilation, bool transposed, IntArrayRef more, int64_t groups) {
  agree(x.device(), kernel.device(), "convolution");
  Maybe added;
  if (bias && bias->defined()) {
    agree(x.device(), bias->device(), "convolution");
    added = mirror(*bias);
  }
  return at::convolution(mirror(x), mirror(kernel), added, stride, padding, dilation, transposed, more, groups)
      .to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& kernel, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef more, int64_t groups, std::array<bool, 3> wanted) {
  agree(x.device(), kernel.device(), "convolution_backward");
  agree(x.device(), gradient.device(), "convolution_backward");
  const int64_t outputs = transposed ? kernel.size(1) * groups : kernel.size(0);
  const auto [for_x, for_kernel, for_bias] =
      at::convolution_backward(mirror(gradient), mirror(x), mirror(kernel), IntArrayRef{outputs}, stride, padding,
                               dilation, transposed, more, groups, wanted);
  const auto there = [&x](const Tensor& value) { return value.defined() ? value.to(x.device()) : value; };
  return {there(for_x), there(for_kernel), there(for_bias)};
}

// Everything else --------------------------------------------------------------------------------

bool takes_host_tensors(const std::string& name) {  // as CUDA does: indices and lengths
  static const std::unordered_set<std::string> names{
      "aten::index",           "aten::index_put",         "aten::index_put_",           "aten::_index_put_impl_",
      "aten::_unsafe_index",   "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::is_set_to"};
  return names.count(name) != 0;
}

bool takes_host_numbers(const c10::OperatorHandle& op) {  // a CPU tensor without dimensions is a number here
  const auto& name = op.schema().name();
  const auto speaks_of = [&name](const char* word) { return name.find(word) != std::string::npos; };
  return op.hasTag(at::Tag::pointwise) || speaks_of("fill") || speaks_of("foreach");
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto& name = op.schema().name();
  const bool numbers = takes_host_numbers(op), any = takes_host_tensors(name);
  const size_t first = stack->size() - arguments.size();
  Where common;
  std::optional<size_t> generator;
  const auto look = [&](const Tensor& tensor, const std::string& argument) {
    if (any || !tensor.defined()) return;
    const bool number = numbers || tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (tensor.is_cpu() && tensor.dim() == 0 && number) return;
    if (common) agree(*common, tensor.device(), "argument " + argument + " of " + name);
    common = tensor.device();
  };
  for (size_t place = 0; place < arguments.size(); ++place) {
    const auto& value = (*stack)[first + place];
    const auto& argument = arguments[place].name();
    if (value.isTensor()) {
      look(value.toTensor(), argument);
    } else if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) look(tensor, argument);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        if (tensor) look(*tensor, argument);
      }
    } else if (value.isGenerator() || (value.isNone() && argument == "generator")) {
      generator = first + place;
    }
  }
  if (generator) {
    auto& value = (*stack)[*generator];
    const at::Generator draws = value.isNone() ? draws_of(common ? common->index() : -1) : value.toGenerator();
    TORCH_CHECK(draws.device().type() == KIND, "Expected a 'twin' device type for generator but found '",
                draws.device().type(), "'");
    value = static_cast<Draws*>(draws.unsafeGetGeneratorImpl())->host;
  }
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resized);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Storage", &set_whole);
  library.impl("set_.source_Storage_storage_offset", &set_part);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("is_set_to", &at::native::is_set_to);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &item);
  library.impl("record_stream", &record_stream);
  library.impl("convolution_overrideable", &convolve);
  library.impl("convolution_backward_overrideable", &convolve_backward);
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
}

// Copies see the lazy bits themselves: without these two the fallbacks of the bits recurse for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY(twin, library) {
  library.def("draws_of(int card) -> Generator?", [](int64_t index) { return draws_of(static_cast<DeviceIndex>(index)); });
}

}  // namespace twin
