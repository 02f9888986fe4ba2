namespace Oxpipe
{
    /// <summary>Why a call failed. The members say what the constants OXP_ERR_ of oxpipe.h say.</summary>
    public enum Status
    {
        Ok = NativeMethods.OXP_OK,
        /// <summary>A defect of the library. The call did nothing, its objects stay usable.</summary>
        Internal = NativeMethods.OXP_ERR_INTERNAL,
        OutOfMemory = NativeMethods.OXP_ERR_OUT_OF_MEMORY,
        /// <summary>A callback ended the call. A requested CancellationToken gives OperationCanceledException instead.</summary>
        Cancelled = NativeMethods.OXP_ERR_CANCELLED,
        DeadlineExceeded = NativeMethods.OXP_ERR_DEADLINE_EXCEEDED,
        Unsupported = NativeMethods.OXP_ERR_UNSUPPORTED,
        InvalidArgument = NativeMethods.OXP_ERR_INVALID_ARGUMENT,
        NullPointer = NativeMethods.OXP_ERR_NULL_POINTER,
        InvalidUtf8 = NativeMethods.OXP_ERR_INVALID_UTF8,
        BufferTooSmall = NativeMethods.OXP_ERR_BUFFER_TOO_SMALL,
        UnknownOption = NativeMethods.OXP_ERR_UNKNOWN_OPTION,
        InvalidOption = NativeMethods.OXP_ERR_INVALID_OPTION,
        StructSize = NativeMethods.OXP_ERR_STRUCT_SIZE,
        OutOfRange = NativeMethods.OXP_ERR_OUT_OF_RANGE,
        InvalidHandle = NativeMethods.OXP_ERR_INVALID_HANDLE,
        /// <summary>Another call is using this object: another thread, or a callback's caller.</summary>
        Busy = NativeMethods.OXP_ERR_BUSY,
        InvalidState = NativeMethods.OXP_ERR_INVALID_STATE,
        InvalidTensor = NativeMethods.OXP_ERR_INVALID_TENSOR,
        UnsupportedDataType = NativeMethods.OXP_ERR_UNSUPPORTED_DTYPE,
        DataTypeMismatch = NativeMethods.OXP_ERR_DTYPE_MISMATCH,
        ShapeMismatch = NativeMethods.OXP_ERR_SHAPE_MISMATCH,
        Overlap = NativeMethods.OXP_ERR_OVERLAP,
        UnknownComponent = NativeMethods.OXP_ERR_UNKNOWN_COMPONENT,
        UnknownPort = NativeMethods.OXP_ERR_UNKNOWN_PORT,
        MissingInput = NativeMethods.OXP_ERR_MISSING_INPUT,
        Io = NativeMethods.OXP_ERR_IO,
        InvalidModel = NativeMethods.OXP_ERR_INVALID_MODEL,
        InvalidPackage = NativeMethods.OXP_ERR_INVALID_PACKAGE,
        MissingOperator = NativeMethods.OXP_ERR_MISSING_OPERATOR,
        BackendUnavailable = NativeMethods.OXP_ERR_BACKEND_UNAVAILABLE,
        RunFailed = NativeMethods.OXP_ERR_RUN_FAILED,
        Tokenizer = NativeMethods.OXP_ERR_TOKENIZER,
        ChatTemplate = NativeMethods.OXP_ERR_CHAT_TEMPLATE,
        Constraint = NativeMethods.OXP_ERR_CONSTRAINT,
        ToolCall = NativeMethods.OXP_ERR_TOOL_CALL,
        InvalidMedia = NativeMethods.OXP_ERR_INVALID_MEDIA,
    }

    /// <summary>The type of a tensor's elements, by ONNX's number.</summary>
    public enum DataType : uint
    {
        /// <summary>A type that does not cross the interface; PortInfo.TypeName says which.</summary>
        Other = 0,
        Float32 = NativeMethods.OXP_DTYPE_FLOAT32,
        UInt8 = NativeMethods.OXP_DTYPE_UINT8,
        Int8 = NativeMethods.OXP_DTYPE_INT8,
        UInt16 = NativeMethods.OXP_DTYPE_UINT16,
        Int16 = NativeMethods.OXP_DTYPE_INT16,
        Int32 = NativeMethods.OXP_DTYPE_INT32,
        Int64 = NativeMethods.OXP_DTYPE_INT64,
        Bool = NativeMethods.OXP_DTYPE_BOOL,
        Float16 = NativeMethods.OXP_DTYPE_FLOAT16,
        UInt32 = NativeMethods.OXP_DTYPE_UINT32,
        UInt64 = NativeMethods.OXP_DTYPE_UINT64,
        BFloat16 = NativeMethods.OXP_DTYPE_BFLOAT16,
        Float8E4M3FN = NativeMethods.OXP_DTYPE_FLOAT8E4M3FN,
        Float8E5M2 = NativeMethods.OXP_DTYPE_FLOAT8E5M2,
    }

    /// <summary>Who runs a graph.</summary>
    public enum Backend : uint
    {
        Native = NativeMethods.OXP_BACKEND_NATIVE,
        Ort = NativeMethods.OXP_BACKEND_ORT,
    }

    /// <summary>When a component of a pipeline runs.</summary>
    public enum Phase : uint
    {
        PromptOnly = NativeMethods.OXP_PHASE_PROMPT_ONLY,
        EveryStep = NativeMethods.OXP_PHASE_EVERY_STEP,
        FinalOnly = NativeMethods.OXP_PHASE_FINAL_ONLY,
        OnDemand = NativeMethods.OXP_PHASE_ON_DEMAND,
    }

    /// <summary>Why a run is finished; None while there is more to come.</summary>
    public enum FinishReason : uint
    {
        None = NativeMethods.OXP_FINISH_NONE,
        EndOfText = NativeMethods.OXP_FINISH_END_OF_TEXT,
        MaxTokens = NativeMethods.OXP_FINISH_MAX_TOKENS,
        ContextFull = NativeMethods.OXP_FINISH_CONTEXT_FULL,
        Completed = NativeMethods.OXP_FINISH_COMPLETED,
        StopString = NativeMethods.OXP_FINISH_STOP_STRING,
        StopTokens = NativeMethods.OXP_FINISH_STOP_TOKENS,
        MaxLength = NativeMethods.OXP_FINISH_MAX_LENGTH,
        Constraint = NativeMethods.OXP_FINISH_CONSTRAINT,
        Cancelled = NativeMethods.OXP_FINISH_CANCELLED,
        Deadline = NativeMethods.OXP_FINISH_DEADLINE,
    }

    /// <summary>What an answer is made to follow.</summary>
    public enum ConstraintKind : uint
    {
        None = NativeMethods.OXP_CONSTRAINT_NONE,
        Json = NativeMethods.OXP_CONSTRAINT_JSON,
        JsonSchema = NativeMethods.OXP_CONSTRAINT_JSON_SCHEMA,
        Regex = NativeMethods.OXP_CONSTRAINT_REGEX,
        Lark = NativeMethods.OXP_CONSTRAINT_LARK,
    }

    public enum LogLevel : uint
    {
        Debug = NativeMethods.OXP_LOG_DEBUG,
        Info = NativeMethods.OXP_LOG_INFO,
        Warning = NativeMethods.OXP_LOG_WARNING,
        Error = NativeMethods.OXP_LOG_ERROR,
    }

    /// <summary>What a special token is for.</summary>
    public enum TokenRole : uint
    {
        BeginOfSequence = NativeMethods.OXP_TOKEN_BOS,
        EndOfSequence = NativeMethods.OXP_TOKEN_EOS,
        Padding = NativeMethods.OXP_TOKEN_PAD,
        Unknown = NativeMethods.OXP_TOKEN_UNK,
        Separator = NativeMethods.OXP_TOKEN_SEP,
    }
}
