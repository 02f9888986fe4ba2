using System;
using System.Buffers;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Oxpipe
{
    /// <summary>
    /// A tensor in managed memory, dense and row-major, to be read. The memory is pinned while a
    /// call reads it, and never copied for it.
    /// </summary>
    public abstract class Tensor
    {
        private readonly long[] shape;

        private protected Tensor(DataType dataType, long[] shape)
        {
            DataType = dataType;
            this.shape = (long[])(shape ?? throw new ArgumentNullException(nameof(shape))).Clone();
        }

        public DataType DataType { get; }

        /// <summary>Its dims; empty for a scalar.</summary>
        public ReadOnlySpan<long> Shape => shape;

        internal long[] Dims => shape;

        internal abstract ulong ByteLength { get; }

        internal abstract MemoryHandle Pin();

        /// <summary>A tensor of all elements of an array, which is not copied.</summary>
        public static Tensor<T> Create<T>(T[] data, params long[] shape) where T : struct
        {
            return new Tensor<T>(DataTypes.Of<T>(), data, shape);
        }

        public static Tensor<T> Create<T>(ReadOnlyMemory<T> data, params long[] shape) where T : struct
        {
            return new Tensor<T>(DataTypes.Of<T>(), data, shape);
        }

        /// <summary>A tensor of another type than T's own: bits of float16 as ushort, or bytes of anything.</summary>
        public static Tensor<T> Create<T>(DataType dataType, T[] data, params long[] shape) where T : struct
        {
            return new Tensor<T>(dataType, data, shape);
        }

        /// <summary>A tensor of another type than T's own: bits of float16 as ushort, or bytes of anything.</summary>
        public static Tensor<T> Create<T>(DataType dataType, ReadOnlyMemory<T> data, params long[] shape) where T : struct
        {
            return new Tensor<T>(dataType, data, shape);
        }
    }

    public sealed class Tensor<T> : Tensor where T : struct
    {
        internal Tensor(DataType dataType, ReadOnlyMemory<T> data, long[] shape) : base(dataType, shape)
        {
            Data = data;
        }

        public ReadOnlyMemory<T> Data { get; }

        internal override ulong ByteLength => Memories.ByteLength(Data);

        internal override MemoryHandle Pin()
        {
            return Memories.Pin(Data);
        }
    }

    /// <summary>
    /// Memory of the caller's for an output, and what the last call has said of that: also how
    /// much it needs, when that was more than there is.
    /// </summary>
    public sealed class OutputBuffer
    {
        private readonly Func<MemoryHandle> pin;
        private long[] shape = new long[0];

        private OutputBuffer(Func<MemoryHandle> pin, ulong capacity)
        {
            this.pin = pin;
            Capacity = capacity;
        }

        public static OutputBuffer Create<T>(Memory<T> memory) where T : struct
        {
            return new OutputBuffer(() => Memories.Pin((ReadOnlyMemory<T>)memory), Memories.ByteLength((ReadOnlyMemory<T>)memory));
        }

        public static OutputBuffer Create<T>(T[] memory) where T : struct
        {
            return Create(new Memory<T>(memory));
        }

        /// <summary>The type of the output.</summary>
        public DataType DataType { get; private set; }

        /// <summary>Bytes that the output has, or needs.</summary>
        public long ByteLength { get; private set; }

        public ReadOnlySpan<long> Shape => shape;

        internal ulong Capacity { get; }

        internal MemoryHandle Pin()
        {
            return pin();
        }

        internal void Learn(DataType dataType, ulong byteLength, long[] dims)
        {
            DataType = dataType;
            ByteLength = checked((long)byteLength);
            shape = dims;
        }
    }

    /// <summary>Reads a tensor of the library's for as long as it lasts, which is until this returns.</summary>
    public delegate TResult TensorReader<out TResult>(TensorView tensor);

    /// <summary>
    /// A tensor in the library's memory. It cannot leave the callback that was given it; its
    /// spans must not be kept either.
    /// </summary>
    public readonly unsafe ref struct TensorView
    {
        private readonly oxp_tensor_in* tensor;

        internal TensorView(oxp_tensor_in* tensor)
        {
            this.tensor = tensor;
        }

        public DataType DataType => (DataType)tensor->dtype;

        /// <summary>Its dims; empty for a scalar.</summary>
        public ReadOnlySpan<long> Shape => new ReadOnlySpan<long>(tensor->shape, (int)tensor->rank);

        public ReadOnlySpan<byte> Bytes => new ReadOnlySpan<byte>(tensor->data, checked((int)tensor->byte_len));

        public long ElementCount => (long)tensor->byte_len / DataTypes.SizeOf(DataType);

        /// <summary>Its elements. InvalidOperationException if they are of another type.</summary>
        public ReadOnlySpan<T> As<T>() where T : struct
        {
            DataType wanted = DataTypes.Of<T>();
            if (wanted != DataType)
            {
                throw new InvalidOperationException(
                    "the tensor's elements are " + DataTypes.NameOf(DataType) + ", not " + DataTypes.NameOf(wanted));
            }
            return new ReadOnlySpan<T>(tensor->data, checked((int)ElementCount));
        }
    }

    internal static class Memories
    {
        internal static ulong ByteLength<T>(ReadOnlyMemory<T> memory) where T : struct
        {
            return (ulong)memory.Length * (ulong)SizeOf<T>();
        }

        internal static MemoryHandle Pin<T>(ReadOnlyMemory<T> memory) where T : struct
        {
            return memory.Pin();
        }

        /// <summary>Bytes from one element to the next in memory.</summary>
        private static int SizeOf<T>() where T : struct
        {
            return MemoryMarshal.AsBytes(new ReadOnlySpan<T>(new T[1])).Length;
        }
    }

    /// <summary>What one call reads and writes, held where it is until the call is over.</summary>
    internal sealed unsafe class Pins : IDisposable
    {
        /// <summary>The most dims that a tensor has.</summary>
        internal const int MaxRank = 64;

        private readonly List<MemoryHandle> memories = new List<MemoryHandle>();
        private readonly List<IntPtr> blocks = new List<IntPtr>();

        /// <summary>Zeroed memory, at least one byte.</summary>
        internal void* Block(long bytes)
        {
            var block = Marshal.AllocHGlobal((IntPtr)Math.Max(bytes, 1));
            blocks.Add(block);
            new Span<byte>((void*)block, checked((int)bytes)).Clear();
            return (void*)block;
        }

        internal byte* Text(string text, out ulong length)
        {
            int count = Calls.Utf8.GetByteCount(text);
            var bytes = (byte*)Block(count);
            fixed (char* characters = text)
            {
                Calls.Utf8.GetBytes(characters, text.Length, bytes, count);
            }
            length = (ulong)count;
            return bytes;
        }

        internal void* Memory(MemoryHandle handle)
        {
            memories.Add(handle);
            return handle.Pointer;
        }

        internal oxp_tensor_in Input(Tensor tensor)
        {
            var dims = (long*)Block(tensor.Dims.Length * sizeof(long));
            for (int axis = 0; axis < tensor.Dims.Length; axis++)
            {
                dims[axis] = tensor.Dims[axis];
            }
            return new oxp_tensor_in
            {
                struct_size = (uint)sizeof(oxp_tensor_in),
                dtype = (uint)tensor.DataType,
                data = Memory(tensor.Pin()),
                byte_len = tensor.ByteLength,
                shape = dims,
                rank = (uint)tensor.Dims.Length,
            };
        }

        internal oxp_named_in* Inputs(IReadOnlyCollection<KeyValuePair<string, Tensor>> inputs)
        {
            var named = (oxp_named_in*)Block((long)inputs.Count * sizeof(oxp_named_in));
            int index = 0;
            foreach (KeyValuePair<string, Tensor> input in inputs)
            {
                ulong length;
                named[index].name = Text(input.Key, out length);
                named[index].name_len = length;
                named[index].tensor = Input(input.Value);
                index++;
            }
            return named;
        }

        /// <summary>Room for a shape, and for the bytes if there is a buffer.</summary>
        internal oxp_tensor_out Output(OutputBuffer buffer)
        {
            return new oxp_tensor_out
            {
                struct_size = (uint)sizeof(oxp_tensor_out),
                data = buffer == null ? null : Memory(buffer.Pin()),
                capacity = buffer == null ? 0 : buffer.Capacity,
                shape = (long*)Block(MaxRank * sizeof(long)),
                shape_capacity = MaxRank,
            };
        }

        internal static long[] Dims(oxp_tensor_out output)
        {
            return new ReadOnlySpan<long>(output.shape, (int)Math.Min(output.rank, MaxRank)).ToArray();
        }

        public void Dispose()
        {
            foreach (MemoryHandle memory in memories)
            {
                memory.Dispose();
            }
            foreach (IntPtr block in blocks)
            {
                Marshal.FreeHGlobal(block);
            }
        }
    }
}
